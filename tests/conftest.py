"""What holds for all tests."""
import signal

# A job in the background of a shell starts with SIGINT and SIGQUIT ignored, and what it starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# Under nohup, SIGHUP too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
