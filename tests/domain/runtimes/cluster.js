// Worker processes that share a listening socket.
const c = require("cluster"), h = require("http"), n = 3;
if (c.isPrimary) {
  let up = 0, seen = new Set(), left = 60;
  for (let i = 0; i < n; i++) c.fork();
  c.on("listening", (w, a) => { if (++up == n) for (let i = 0; i < 60; i++) h.get({host: "127.0.0.1", port: a.port, agent: false}, r => {
    let s = ""; r.on("data", d => s += d); r.on("end", () => { seen.add(s); if (!--left) { console.log("workers", seen.size); c.disconnect(); } }); }); });
} else h.createServer((q, r) => r.end("" + process.pid)).listen(0, "127.0.0.1");
