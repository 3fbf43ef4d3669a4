<?php
// PHP's own web server with worker processes, asked by several clients at once; then processes, streams, files and fibers.
file_put_contents("/tmp/app.php", '<?php if ($_SERVER["REQUEST_URI"] == "/big") { echo str_repeat("x", 1000000); return; } echo strrev(file_get_contents("php://input"));');
$free = stream_socket_server("tcp://127.0.0.1:0");
$at = stream_socket_get_name($free, false);
fclose($free);
$server = proc_open([PHP_BINARY, "-S", $at, "/tmp/app.php"], [["pipe", "r"], ["file", "/tmp/server.log", "w"], ["file", "/tmp/server.log", "a"]], $pipes, "/tmp", ["PHP_CLI_SERVER_WORKERS" => "4"]);
for ($i = 0; $i < 6000 && !($c = @stream_socket_client("tcp://$at")); $i++) usleep(10000);
fclose($c);
$good = 0;
for ($round = 0; $round < 25; $round++) {
    $open = [];
    for ($i = 0; $i < 8; $i++) {
        $s = stream_socket_client("tcp://$at", $no, $text, 60);
        $body = "round $round client $i";
        fwrite($s, "POST / HTTP/1.0\r\nContent-Length: " . strlen($body) . "\r\n\r\n$body");
        $open[$i] = [$s, $body, ""];
    }
    while ($open) {
        $read = array_column($open, 0); $write = $except = null;
        stream_select($read, $write, $except, 60);
        foreach ($open as $i => [$s, $body, $got]) if (in_array($s, $read, true)) {
            $data = fread($s, 8192);
            if ($data === "" && feof($s)) {
                if (str_ends_with($got, "\r\n\r\n" . strrev($body))) $good++;
                fclose($s);
                unset($open[$i]);
            } else $open[$i][2] .= $data;
        }
    }
}
echo "http $good\n";
echo "big ", strlen(file_get_contents("http://$at/big")), "\n";
proc_terminate($server);
echo "stopped ", proc_close($server) >= -1 ? "yes" : "no", "\n";
$p = proc_open(["sort", "-n"], [["pipe", "r"], ["pipe", "w"]], $io);
fwrite($io[0], implode("\n", range(5000, 1)));
fclose($io[0]);
$sorted = explode("\n", trim(stream_get_contents($io[1])));
echo "sort ", count($sorted), " ", $sorted[0], " ", proc_close($p), "\n";
[$a, $b] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
$pid = pcntl_fork();
if ($pid == 0) { fwrite($b, "child " . getmypid()); exit(7); }
pcntl_waitpid($pid, $status);
echo fread($a, 100) === "child $pid" ? "fork " : "no ", pcntl_wexitstatus($status), "\n";
pcntl_async_signals(true);
$caught = 0;
pcntl_signal(SIGALRM, function () use (&$caught) { $caught++; });
pcntl_alarm(1);
sleep(5);
echo "alarm $caught\n";
$f = new Fiber(function ($x) { while (true) $x = Fiber::suspend($x * 2); });
echo "fiber ", $f->start(21), " ", $f->resume(4), "\n";
$t = tempnam("/tmp", "p"); file_put_contents($t, str_repeat("line\n", 10000), LOCK_EX);
echo "file ", count(file($t)), " ", hash("sha256", file_get_contents($t)) === hash_file("sha256", $t) ? "same" : "other", "\n";
