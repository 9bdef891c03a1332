# docker build -t ntmp . && docker run --rm --user "$(id -u)" --volume "$PWD:/data" ntmp --help
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir --constraint /src/constraints.txt /src
# Matplotlib keeps its font cache below HOME; any user may write here.
ENV HOME=/tmp
WORKDIR /data
ENTRYPOINT ["ntmp"]
