"""A Ray cluster of two nodes on 127.0.0.1, in a separate process: prints its address, ends with its input."""

from __future__ import annotations

import os
import sys

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}

from ray.cluster_utils import Cluster


def main() -> None:
    node = {
        "num_cpus": 1,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
        "object_store_memory": 80 * 2**20,
    }
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        cluster.add_node(**{key: value for key, value in node.items() if key != "include_dashboard"})
        cluster.wait_for_nodes()
        os.write(1, f"address {cluster.address}\n".encode())
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
