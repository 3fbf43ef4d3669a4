// An HTTP server, clients that ask it all the time, a worker thread and child processes; all answers are checked.
const http = require("http"), { Worker } = require("worker_threads"), { execFile } = require("child_process");
const rounds = { http: 0, worker: 0, child: 0, timer: 0 };
let stop = false;
const fail = (e) => { console.log("failed", e); process.exit(1); };
const agent = new http.Agent({ keepAlive: true });
const server = http.createServer((q, r) => { let n = 0; q.on("data", (d) => (n += d.length)).on("end", () => r.end(`${q.url} ${n}`)); });
const ask = (port, i) => new Promise((done, bad) => {
  const q = http.request({ host: "127.0.0.1", port, path: `/${i}`, method: "POST", agent }, (r) => {
    let text = "";
    r.on("data", (d) => (text += d)).on("end", () => (text === `/${i} 5000` ? done() : bad(text)));
  });
  q.on("error", bad).end("x".repeat(5000));
});
const forever = async (name, once) => { while (!stop) { await once(); rounds[name]++; } };
const more = async (n) => { const from = { ...rounds }; while (Object.keys(from).some((k) => rounds[k] < from[k] + n)) await new Promise((f) => setTimeout(f, 2)); };
server.listen(0, "127.0.0.1", async () => {
  const port = server.address().port, jobs = [];
  for (let i = 0; i < 4; i++) jobs.push(forever("http", () => ask(port, i)));
  const worker = new Worker('const { parentPort: p } = require("worker_threads"); p.on("message", (n) => { let s = 0; for (let i = 1; i <= n; i++) s += i; p.postMessage(s); });', { eval: true });
  jobs.push(forever("worker", () => new Promise((f, bad) => { worker.once("message", (s) => (s === 5000050000 ? f() : bad(s))); worker.postMessage(100000); })));
  jobs.push(forever("child", () => new Promise((f, bad) => execFile("echo", ["hello"], (e, out) => (out === "hello\n" ? f() : bad(e))))));
  jobs.push(forever("timer", () => new Promise((f) => setTimeout(f, 3))));
  Promise.all(jobs).catch(fail);
  await more(5);
  console.log("ready");
  process.stdin.once("data", async () => {
    await more(5);
    stop = true;
    await Promise.all(jobs);
    console.log("ok");
    process.exit(0);
  });
});
