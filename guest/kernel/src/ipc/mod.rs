//! Inter-process communication: pipes, eventfd, epoll, timerfd, signalfd, inotify, SysV IPC.
