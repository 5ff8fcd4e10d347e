"""System calls by what the sandbox does with them, and their numbers on each machine.

A call that is in none of these groups is refused (EPERM), and one that is newer than this table
does not exist (ENOSYS). The numbers come from the kernel's ``asm/unistd_64.h`` (x86_64) and
``asm-generic/unistd.h`` (aarch64); they never change.
"""

from __future__ import annotations


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALLOWED = _names("""
access alarm arch_prctl brk chdir chmod clock_getres clock_gettime clock_nanosleep close
close_range copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait
epoll_wait eventfd2 exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod
fchmodat fcntl fdatasync flock fstat fstatfs fsync ftruncate futex get_robust_list getcpu getcwd
getdents getdents64 getegid geteuid getgid getgroups getitimer getpgid getpgrp getpid getppid
getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid gettimeofday getuid
kill lseek lstat madvise membarrier mkdir mkdirat mmap mprotect mremap msync munmap nanosleep
newfstatat open openat pause pipe pipe2 poll ppoll pread64 preadv pselect6 pwrite64 pwritev read
readlink readlinkat readv recvfrom rename renameat renameat2 restart_syscall rmdir rseq
rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait
sched_getaffinity sched_getparam sched_getscheduler sched_yield select sendfile sendto
set_robust_list set_tid_address setitimer setpriority sigaltstack stat statfs statx symlink
symlinkat sysinfo tgkill time times truncate umask uname unlink unlinkat utimensat wait4 waitid
write writev
""")
"""What a computation needs: memory, its own files, threads, clocks, signals to itself."""

STARTING = _names("""
execve prctl prlimit64 sendmsg
""")
"""What the worker needs until the program starts; the second filter takes it away."""

ATTACKS = _names("""
acct add_key bpf capset chroot delete_module fanotify_init finit_module fsconfig fsmount fsopen
fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp
kexec_file_load kexec_load keyctl modify_ldt mount mount_setattr move_mount name_to_handle_at
open_by_handle_at open_tree perf_event_open personality pidfd_getfd pivot_root process_madvise
process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot request_key setdomainname
setfsgid setfsuid setgid setgroups sethostname setns setregid setresgid setresuid setreuid setuid
swapoff swapon umount2 unshare userfaultfd
""")
"""No computation has an innocent use for these: the process is killed on the spot."""

NEWEST = 450
"""Later numbers did not exist when this table was written."""

_X86_64 = """
access=21 acct=163 add_key=248 alarm=37 arch_prctl=158 bpf=321 brk=12 capset=126 chdir=80 chmod=90
chroot=161 clock_getres=229 clock_gettime=228 clock_nanosleep=230 clone=56 clone3=435 close=3
close_range=436 copy_file_range=326 creat=85 delete_module=176 dup=32 dup2=33 dup3=292
epoll_create=213 epoll_create1=291 epoll_ctl=233 epoll_pwait=281 epoll_wait=232 eventfd2=290
execve=59 execveat=322 exit=60 exit_group=231 faccessat=269 faccessat2=439 fadvise64=221
fallocate=285 fanotify_init=300 fchdir=81 fchmod=91 fchmodat=268 fcntl=72 fdatasync=75
finit_module=313 flock=73 fsconfig=431 fsmount=432 fsopen=430 fspick=433 fstat=5 fstatfs=138
fsync=74 ftruncate=77 futex=202 get_robust_list=274 getcpu=309 getcwd=79 getdents=78
getdents64=217 getegid=108 geteuid=107 getgid=104 getgroups=115 getitimer=36 getpgid=121
getpgrp=111 getpid=39 getppid=110 getpriority=140 getrandom=318 getresgid=120 getresuid=118
getrlimit=97 getrusage=98 getsid=124 gettid=186 gettimeofday=96 getuid=102 init_module=175
io_uring_enter=426 io_uring_register=427 io_uring_setup=425 ioctl=16 ioperm=173 iopl=172 kcmp=312
kexec_file_load=320 kexec_load=246 keyctl=250 kill=62 lseek=8 lstat=6 madvise=28 membarrier=324
mkdir=83 mkdirat=258 mmap=9 modify_ldt=154 mount=165 mount_setattr=442 move_mount=429 mprotect=10
mremap=25 msync=26 munmap=11 name_to_handle_at=303 nanosleep=35 newfstatat=262 open=2
open_by_handle_at=304 open_tree=428 openat=257 pause=34 perf_event_open=298 personality=135
pidfd_getfd=438 pipe=22 pipe2=293 pivot_root=155 poll=7 ppoll=271 prctl=157 pread64=17 preadv=295
prlimit64=302 process_madvise=440 process_vm_readv=310 process_vm_writev=311 pselect6=270
ptrace=101 pwrite64=18 pwritev=296 quotactl=179 quotactl_fd=443 read=0 readlink=89 readlinkat=267
readv=19 reboot=169 recvfrom=45 rename=82 renameat=264 renameat2=316 request_key=249
restart_syscall=219 rmdir=84 rseq=334 rt_sigaction=13 rt_sigpending=127 rt_sigprocmask=14
rt_sigreturn=15 rt_sigsuspend=130 rt_sigtimedwait=128 sched_getaffinity=204 sched_getparam=143
sched_getscheduler=145 sched_yield=24 select=23 sendfile=40 sendmsg=46 sendto=44
set_robust_list=273 set_tid_address=218 setdomainname=171 setfsgid=123 setfsuid=122 setgid=106
setgroups=116 sethostname=170 setitimer=38 setns=308 setpriority=141 setregid=114 setresgid=119
setresuid=117 setreuid=113 setuid=105 sigaltstack=131 socketpair=53 stat=4 statfs=137 statx=332
swapoff=168 swapon=167 symlink=88 symlinkat=266 sysinfo=99 tgkill=234 time=201 times=100
truncate=76 umask=95 umount2=166 uname=63 unlink=87 unlinkat=263 unshare=272 userfaultfd=323
utimensat=280 wait4=61 waitid=247 write=1 writev=20
"""
_AARCH64 = """
acct=89 add_key=217 bpf=280 brk=214 capset=91 chdir=49 chroot=51 clock_getres=114
clock_gettime=113 clock_nanosleep=115 clone=220 clone3=435 close=57 close_range=436
copy_file_range=285 delete_module=106 dup=23 dup3=24 epoll_create1=20 epoll_ctl=21 epoll_pwait=22
eventfd2=19 execve=221 execveat=281 exit=93 exit_group=94 faccessat=48 faccessat2=439
fadvise64=223 fallocate=47 fanotify_init=262 fchdir=50 fchmod=52 fchmodat=53 fcntl=25 fdatasync=83
finit_module=273 flock=32 fsconfig=431 fsmount=432 fsopen=430 fspick=433 fstat=80 fstatfs=44
fsync=82 ftruncate=46 futex=98 get_robust_list=100 getcpu=168 getcwd=17 getdents64=61 getegid=177
geteuid=175 getgid=176 getgroups=158 getitimer=102 getpgid=155 getpid=172 getppid=173
getpriority=141 getrandom=278 getresgid=150 getresuid=148 getrlimit=163 getrusage=165 getsid=156
gettid=178 gettimeofday=169 getuid=174 init_module=105 io_uring_enter=426 io_uring_register=427
io_uring_setup=425 ioctl=29 kcmp=272 kexec_file_load=294 kexec_load=104 keyctl=219 kill=129
lseek=62 madvise=233 membarrier=283 mkdirat=34 mmap=222 mount=40 mount_setattr=442 move_mount=429
mprotect=226 mremap=216 msync=227 munmap=215 name_to_handle_at=264 nanosleep=101 newfstatat=79
open_by_handle_at=265 open_tree=428 openat=56 perf_event_open=241 personality=92 pidfd_getfd=438
pipe2=59 pivot_root=41 ppoll=73 prctl=167 pread64=67 preadv=69 prlimit64=261 process_madvise=440
process_vm_readv=270 process_vm_writev=271 pselect6=72 ptrace=117 pwrite64=68 pwritev=70
quotactl=60 quotactl_fd=443 read=63 readlinkat=78 readv=65 reboot=142 recvfrom=207 renameat=38
renameat2=276 request_key=218 restart_syscall=128 rseq=293 rt_sigaction=134 rt_sigpending=136
rt_sigprocmask=135 rt_sigreturn=139 rt_sigsuspend=133 rt_sigtimedwait=137 sched_getaffinity=123
sched_getparam=121 sched_getscheduler=120 sched_yield=124 sendfile=71 sendmsg=211 sendto=206
set_robust_list=99 set_tid_address=96 setdomainname=162 setfsgid=152 setfsuid=151 setgid=144
setgroups=159 sethostname=161 setitimer=103 setns=268 setpriority=140 setregid=143 setresgid=149
setresuid=147 setreuid=145 setuid=146 sigaltstack=132 socketpair=199 statfs=43 statx=291
swapoff=225 swapon=224 symlinkat=36 sysinfo=179 tgkill=131 times=153 truncate=45 umask=166
umount2=39 uname=160 unlinkat=35 unshare=97 userfaultfd=282 utimensat=88 wait4=260 waitid=95
write=64 writev=66
"""


def numbers(machine: str) -> dict[str, int] | None:
    """System call numbers by name on ``machine`` (as ``platform.machine()`` says), if known.

    A call that a machine does not have is absent.
    """
    table = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(machine)
    if table is None:
        return None
    return {name: int(number) for name, number in (pair.split("=") for pair in table.split())}
