"""The other end of the suite `outside`: a server of the host that does what a case asks for, over TCP and UDP.

A case connects and sends a line: a command, and often a key by which other connections refer to this one
(`go KEY`: go on; `told KEY`: what came of it, a line, as soon as it is known).
"""
import array
import collections
import fcntl
import select
import socket
import struct
import threading

SIOCATMARK = 0x8905
RESET = struct.pack("ii", 1, 0)


class Partner:
    """Listens on 127.0.0.1 until `close`; `port` is TCP's and UDP's."""

    def __init__(self):
        while True:
            self.tcp = socket.create_server(("127.0.0.1", 0), backlog=128)
            self.port = self.tcp.getsockname()[1]
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                self.udp.bind(("127.0.0.1", self.port))
                break
            except OSError:  # Another has this port.
                self.tcp.close()
                self.udp.close()
        self.changed = threading.Condition()
        self.going, self.outcome = collections.Counter(), {}
        for serve in (self.listen, self.datagrams):
            threading.Thread(target=serve, daemon=True).start()

    def close(self):
        for s in (self.tcp, self.udp):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def listen(self):
        while True:
            try:
                s, _ = self.tcp.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        line = b""
        with s:
            try:
                while not line.endswith(b"\n"):
                    byte = s.recv(1)
                    if not byte:
                        return
                    line += byte
                command, *args = line.decode().split()
                getattr(self, "do_" + command)(s, *args)
            except OSError:
                pass  # The case has gone.

    # Between connections.

    def wait(self, key):
        with self.changed:
            self.changed.wait_for(lambda: self.going[key] > 0)
            self.going[key] -= 1

    def tell(self, key, text):
        with self.changed:
            self.outcome[key] = text
            self.changed.notify_all()

    def do_go(self, s, key):
        with self.changed:
            self.going[key] += 1
            self.changed.notify_all()
        s.sendall(b"ok\n")

    def do_told(self, s, key):
        with self.changed:
            self.changed.wait_for(lambda: key in self.outcome)
        s.sendall(self.outcome[key].encode() + b"\n")

    # What cases ask for.

    def do_echo(self, s):
        """Sends everything back."""
        while data := s.recv(65536):
            s.sendall(data)

    def do_watch(self, s, key, first="0"):
        """Reads to the end and says how that was; after `go` if `first`."""
        s.settimeout(None)
        if first != "0":
            self.wait(key)
        total = 0
        try:
            while data := s.recv(65536):
                total += len(data)
            self.tell(key, f"end {total}")
        except ConnectionResetError:
            self.tell(key, f"reset {total}")

    def do_half(self, s, key):
        """Ends its own side first, then reads to the end."""
        s.sendall(b"hello")
        s.shutdown(socket.SHUT_WR)
        self.do_watch(s, key)

    def do_reset(self, s, text=""):
        """Sends and resets, once that has been read or at once."""
        s.sendall(text.encode())
        if text:
            s.recv(1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def do_pieces(self, s, key, *texts):
        """Sends one after the other, each but the first after a `go`; then ends after another."""
        for i, text in enumerate(texts):
            if i:
                self.wait(key)
            s.sendall(text.encode())
        self.wait(key)

    def do_flood(self, s, count):
        """Sends so many bytes."""
        s.sendall(bytes(i * 7 % 251 for i in range(251)) * (int(count) // 251 + 1))

    def do_urge(self, s, key, before, urgent, after):
        """Sends bytes, an urgent one, and more, all at once; then ends after a `go`."""
        if before != "-":
            s.sendall(before.encode())
        s.send(urgent.encode(), socket.MSG_OOB)
        if after != "-":
            s.sendall(after.encode())
        self.wait(key)

    def do_urge_after(self, s, key):
        """Sends an urgent byte after a `go`, and waits for the case's end."""
        self.wait(key)
        s.send(b"X", socket.MSG_OOB)
        s.recv(1)

    def do_hear(self, s, key):
        """Reads to the end; says what came, with the urgent byte in brackets where its mark was."""
        s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        # So that the mark is not passed before it is known.
        self.wait(key)
        text, mark = b"", array.array("i", [0])
        while True:
            select.select([s], [], [])
            fcntl.ioctl(s, SIOCATMARK, mark)
            data = s.recv(65536)
            if not data:
                break
            text += b"[" + data[:1] + b"]" + data[1:] if mark[0] else data
        self.tell(key, text.decode())

    def do_call(self, s, port):
        """Calls the case at a published port, says something, and does what is asked for there."""
        with socket.create_connection(("127.0.0.1", int(port))) as back:
            s.sendall(b"ok\n")
            self.serve(back)

    def do_call_reset(self, s, port):
        """Calls at a published port and resets."""
        with socket.create_connection(("127.0.0.1", int(port))) as back:
            back.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        s.sendall(b"ok\n")

    def do_ask(self, s, port, text):
        """Sends a datagram to a published port and says what was answered."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
            u.settimeout(60)
            u.sendto(text.encode(), ("127.0.0.1", int(port)))
            s.sendall(u.recv(65536) + b"\n")

    def datagrams(self):
        u = self.udp
        for option in (socket.IP_RECVTOS, 12):  # IP_RECVTTL
            u.setsockopt(socket.IPPROTO_IP, option, 1)
        while True:
            try:
                data, control, _, peer = u.recvmsg(65536, 256)
                if not data and not control:
                    return
                self.datagram(data, {kind: value[0] for _, kind, value in control}, peer)
            except OSError:
                if self.udp.fileno() < 0:
                    return

    def datagram(self, data, marks, peer):
        """`seen`: says how this datagram came; `marked HOPS CLASS`: answers so; anything else comes back."""
        words = data.decode(errors="replace").split()
        if words[:1] == ["seen"]:
            data = f"hops {marks[2]} class {marks[1]}".encode()
        elif words[:1] == ["marked"]:
            self.mark(int(words[1]), int(words[2]))
            self.udp.sendto(data, peer)
            return self.mark(64, 0)
        self.udp.sendto(data, peer)

    def mark(self, hops, traffic_class):
        self.udp.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
        self.udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, traffic_class)


if __name__ == "__main__":
    p = Partner()
    print(p.port, flush=True)
    threading.Event().wait()
