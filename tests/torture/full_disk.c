/* A disk that is full from the k-th write on: writes below a folder fail with ENOSPC. Loaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char watched[PATH_MAX];
static size_t watched_length;
static long seen, first_failure;

/* Called by the test: count writes below `folder`, and fail those from number `k` on; 0 only counts. */
void full_disk_watch(const char *folder, long k) {
    strncpy(watched, folder, sizeof watched - 1);
    watched_length = strlen(watched);
    first_failure = k;
    __atomic_store_n(&seen, 0, __ATOMIC_SEQ_CST);
}

long full_disk_seen(void) { return __atomic_load_n(&seen, __ATOMIC_SEQ_CST); }

static int fails_here(void) {
    long number = __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST);
    if (first_failure && number >= first_failure) {
        errno = ENOSPC;
        return 1;
    }
    return 0;
}

static int path_fails(const char *path) {
    return watched_length && path && strncmp(path, watched, watched_length) == 0 && fails_here();
}

static int descriptor_fails(int descriptor) {
    char link[64], target[PATH_MAX];
    if (!watched_length) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0) return 0;
    target[length] = 0;
    return path_fails(target);
}

#define NEXT(name) static __typeof__(&name) next; if (!next) next = dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) { NEXT(write); return descriptor_fails(fd) ? -1 : next(fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { NEXT(pwrite); return descriptor_fails(fd) ? -1 : next(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { NEXT(pwrite64); return descriptor_fails(fd) ? -1 : next(fd, data, size, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) { NEXT(writev); return descriptor_fails(fd) ? -1 : next(fd, parts, count); }
int ftruncate(int fd, off_t size) { NEXT(ftruncate); return descriptor_fails(fd) ? -1 : next(fd, size); }
int ftruncate64(int fd, off64_t size) { NEXT(ftruncate64); return descriptor_fails(fd) ? -1 : next(fd, size); }
int fsync(int fd) { NEXT(fsync); return descriptor_fails(fd) ? -1 : next(fd); }
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t size, unsigned flags) {
    NEXT(copy_file_range);
    return descriptor_fails(to) ? -1 : next(from, at, to, there, size, flags);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
    static ssize_t (*next)(int, int, off64_t *, size_t);
    if (!next) next = dlsym(RTLD_NEXT, "sendfile64");
    return descriptor_fails(to) ? -1 : next(to, from, at, size);
}
ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    static ssize_t (*next)(int, int, off_t *, size_t);
    if (!next) next = dlsym(RTLD_NEXT, "sendfile");
    return descriptor_fails(to) ? -1 : next(to, from, at, size);
}
int mkdir(const char *path, mode_t mode) { NEXT(mkdir); return path_fails(path) ? -1 : next(path, mode); }

static int opens_new(const char *path, int flags) { return (flags & O_CREAT) && path_fails(path); }

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    NEXT(open);
    return opens_new(path, flags) ? -1 : next(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    NEXT(open64);
    return opens_new(path, flags) ? -1 : next(path, flags, mode);
}
