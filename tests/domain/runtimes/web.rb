# An HTTP server of threads, a forked client, then processes, pipes, signals and files.
require "socket"
require "net/http"
require "timeout"
require "tempfile"
require "open3"
s = TCPServer.new("127.0.0.1", 0)
port = s.addr[1]
Thread.new do
  loop do
    Thread.new(s.accept) do |c|
      head = +""
      while (line = c.gets) && line != "\r\n" do head << line end
      body = c.read(head[/content-length: (\d+)/i, 1].to_i)
      c.write "HTTP/1.1 200 OK\r\nContent-Length: #{body.size}\r\nConnection: close\r\n\r\n#{body.reverse}"
      c.close
    end
  end
end
r, w = IO.pipe
pid = fork do
  r.close
  good = 8.times.map { |t| Thread.new { 25.times.count { |i| Net::HTTP.post(URI("http://127.0.0.1:#{port}/"), "body #{t} #{i}").body == "body #{t} #{i}".reverse } } }.sum(&:value)
  w.puts good
  exit! 3
end
w.close
puts "http #{r.read.to_i}"
puts "exit #{Process.wait2(pid)[1].exitstatus}"
out, status = Open3.capture2("sort -n", stdin_data: (1..5000).to_a.reverse.join("\n"))
puts "sort #{out.lines.size} #{out.lines.first.to_i} #{status.success?}"
got = []
trap("USR1") { got << 1 }
Process.kill("USR1", Process.pid)
sleep 0.01 until got.size == 1
puts "signal"
begin
  Timeout.timeout(0.1) { Queue.new.pop; }
rescue Timeout::Error, fatal
  puts "timeout"
end
Tempfile.create("x") { |f| f.write("a" * 100_000); f.flush; f.rewind; puts "file #{f.read.size} #{f.flock(File::LOCK_EX)}" }
q = SizedQueue.new(10)
sum = 0
c = 4.times.map { Thread.new { n = 0; while (x = q.pop) do n += x end; n } }
10_000.times { |i| q << i }
4.times { q << nil }
puts "queue #{c.sum(&:value)}"
