// A Node.js HTTP server, frozen when it has served enough requests for its code to be compiled.
//
// A clone has the server's listening socket as it was, and makes one request to it, with its first argument as the
// path, over its own loopback. What the server answers is its output.
const http = require("http");
const fs = require("fs");

let served = 0;
const server = http.createServer((request, response) => {
  served++;
  const words = decodeURIComponent(request.url.slice(1)).split(" ");
  response.end(JSON.stringify({ served, words, reversed: words.slice().reverse().join(" ") }));
});
const get = (path) =>
  new Promise((resolve, reject) => {
    const options = { host: "127.0.0.1", port: server.address().port, path: "/" + encodeURIComponent(path), agent: false };
    http.get(options, (r) => {
      let text = "";
      r.on("data", (d) => (text += d)).on("end", () => resolve(text));
    }).on("error", reject);
  });

server.listen(0, "127.0.0.1", async () => {
  for (let i = 0; i < 200; i++) await get("warm up " + i);
  // Returns in every clone.
  fs.writeFileSync("/sys/power/state", "freeze\n");
  console.log(await get(fs.readFileSync("/sys/doppel/args", "utf8").split("\n")[0]));
  server.close();
});
