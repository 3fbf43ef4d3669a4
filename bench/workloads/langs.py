"""Language runtimes (image `runtimes`): HTTP servers of Node.js and the JVM under load by a client of their own, Python
computing.

The JVM's server sets TCP_NODELAY: else delayed acknowledgements of the host, not work, are what is measured.
Server and client are one program of several threads, so that one command measures both; it prints requests a second.
"""

from harness.inside import timed

UNIT = "/s"
TARGETS = {}
IMAGE = "runtimes"
NODE = """
const http = require('http'), {Worker, isMainThread, workerData} = require('worker_threads');
if (isMainThread) {
  const s = http.createServer((q, r) => r.end('hello\\n'));
  s.listen(0, '127.0.0.1', () => {
    const w = new Worker(__filename, {workerData: {port: s.address().port, ms: +process.argv[2]}});
    w.on('message', n => { console.log(n); process.exit(0); });
  });
} else {
  const {parentPort} = require('worker_threads'), {port, ms} = workerData;
  const agent = new http.Agent({keepAlive: true, maxSockets: 32});
  let count = 0, start;
  const one = () => http.get({host: '127.0.0.1', port, agent}, r => { r.resume(); r.on('end', () => { count++; one(); }); });
  for (let i = 0; i < 32; i++) one();
  setTimeout(() => { start = Date.now(); const from = count;
    setTimeout(() => parentPort.postMessage((count - from) * 1000 / (Date.now() - start)), ms); }, ms / 2);
}
"""  # noqa: E501
JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
public class H {
    public static void main(String[] a) throws Exception {
        long ms = Long.parseLong(a[0]);
        HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 64);
        s.setExecutor(Executors.newFixedThreadPool(8));
        s.createContext("/", x -> { x.sendResponseHeaders(200, 6); x.getResponseBody().write("hello\\n".getBytes()); x.close(); });
        s.start();
        AtomicLong n = new AtomicLong();
        for (int i = 0; i < 8; i++) new Thread(() -> {
            try (Socket k = new Socket("127.0.0.1", s.getAddress().getPort())) {
                k.setTcpNoDelay(true);
                byte[] q = "GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n".getBytes(), b = new byte[4096];
                for (;;) {
                    k.getOutputStream().write(q);
                    int got = 0;
                    do got += k.getInputStream().read(b, got, b.length - got); while (b[got - 1] != '\\n' || b[got - 2] != 'o');
                    n.incrementAndGet();
                }
            } catch (IOException e) { System.exit(1); }
        }).start();
        Thread.sleep(ms / 2);
        long from = n.get(), t = System.nanoTime();
        Thread.sleep(ms);
        System.out.println((n.get() - from) * 1e9 / (System.nanoTime() - t));
        System.exit(0);
    }
}
"""  # noqa: E501
COMPUTE = """
import math
def fannkuch(n):
    p, q, s, sign, best, total = list(range(n)), list(range(n)), list(range(n)), 1, 0, 0
    while True:
        if (q0 := p[0]) != 0:
            q[1:] = p[1:]
            flips = 1
            while (qq := q[q0]) != 0:
                q[q0] = q0
                if q0 >= 3:
                    q[1:q0] = q[q0 - 1:0:-1]
                q0 = qq
                flips += 1
            best = max(best, flips)
            total += sign * flips
        if sign == 1:
            p[0], p[1] = p[1], p[0]
            sign = -1
        else:
            p[1], p[2] = p[2], p[1]
            sign = 1
            for i in range(2, n):
                if s[i] != 0:
                    s[i] -= 1
                    break
                if i == n - 1:
                    return total, best
                s[i] = i
                p.insert(i + 1, p.pop(0))
assert fannkuch(8) == (1616, 22)
"""


def measure(runtime, opt):
    ms = "400" if opt.quick else "3000"

    def rate(name, text, command):
        return float(
            runtime.run(
                "sh", "-c", f'cd /tmp && printf %s "$1" > {name} && {command}', "sh", text, image=IMAGE
            ).split()[-1]
        )

    rows = {
        "Node.js, HTTP requests": rate("h.js", NODE, f"node h.js {ms}"),
        "Python, fannkuch 8": (
            timed(runtime, "python3", "-c", COMPUTE, image=IMAGE, count=2 if opt.quick else 5),
            "ns",
        ),
    }
    if not opt.quick:
        rows["JVM, HTTP requests"] = rate("H.java", JAVA, f"java -Dsun.net.httpserver.nodelay=true H.java {ms}")
    return rows
