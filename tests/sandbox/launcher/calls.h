/* Included before each source of the launcher that is fuzzed: calls that change this process or the machine do nothing.
   Each answers as it likes, by the input that is tried: with a descriptor, with 0, or with an error. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

long any_result(void);
int any_descriptor(void);
long any_call(long number, ...);
ssize_t any_data(void *data, size_t size);
_Noreturn void leave(int code);

#define syscall any_call
#define mount(...) ((int)any_result())
#define umount2(...) ((int)any_result())
#define prctl(...) ((int)any_result())
#define umask(mode) ((void)(mode))
#define chdir(...) ((int)any_result())
#define fchdir(...) ((int)any_result())
#define chmod(...) ((int)any_result())
#define fchmod(...) ((int)any_result())
#define fchownat(...) ((int)any_result())
#define utimensat(...) ((int)any_result())
#define setxattr(...) ((int)any_result())
#define removexattr(...) ((int)any_result())
#define mkdirat(...) ((int)any_result())
#define symlinkat(...) ((int)any_result())
#define socket(...) any_descriptor()
#define setsockopt(...) ((int)any_result())
#define getsockopt(...) ((int)any_result())
#define bind(...) ((int)any_result())
#define listen(...) ((int)any_result())
#define connect(...) ((int)any_result())
#define sendto(...) any_result()
#define recv(channel, data, size, flags) any_data(data, size)
#define pread(memory, data, size, at) any_data(data, size)
#define readlink(path, data, size) any_data(data, size)
#define open(...) any_descriptor()
#define openat(...) any_descriptor()
#define _exit(code) leave(code)
