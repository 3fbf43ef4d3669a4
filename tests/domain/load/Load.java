// Threads that compute, lock, wait, sleep and make garbage, with an HTTP server and its clients beside; all is checked.
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.net.http.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

public class Load {
    static volatile boolean stop;
    static final Map<String, AtomicLong> rounds = new ConcurrentSkipListMap<>();

    interface Job { void once() throws Exception; }

    static Thread start(String name, Job job) {
        AtomicLong n = new AtomicLong();
        rounds.put(name, n);
        Thread t = new Thread(() -> {
            try { while (!stop) { job.once(); n.incrementAndGet(); } } catch (Throwable e) { e.printStackTrace(); System.exit(3); }
        }, name);
        t.start();
        return t;
    }

    static byte[] hash(int seed) throws Exception {
        MessageDigest d = MessageDigest.getInstance("SHA-256");
        byte[] b = { (byte) seed };
        for (int i = 0; i < 3000; i++) b = d.digest(b);
        return b;
    }

    static void check(boolean right, String what) { if (!right) throw new IllegalStateException(what); }

    static void more(long n) throws Exception {
        Map<String, Long> from = new HashMap<>();
        rounds.forEach((k, v) -> from.put(k, v.get()));
        long end = System.nanoTime() + 60_000_000_000L;
        for (String k : from.keySet())
            while (rounds.get(k).get() < from.get(k) + n) { check(System.nanoTime() < end, k + " does not go on"); Thread.sleep(2); }
    }

    public static void main(String[] a) throws Exception {
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            byte[] right = hash(i);
            int seed = i;
            all.add(start("hash" + i, () -> check(Arrays.equals(hash(seed), right), "hash")));
        }
        Exchanger<Integer> exchanger = new Exchanger<>();
        for (int i = 0; i < 2; i++) {
            int me = i;
            all.add(start("exchange" + i, () -> {
                // A busy host may keep the other one away for some seconds; at the end it is gone.
                for (int tries = 0; !stop; tries++) {
                    check(tries < 20, "nobody there");
                    try { check(exchanger.exchange(me, 1, TimeUnit.SECONDS) != me, "exchange"); break; } catch (TimeoutException e) { }
                }
            }));
        }
        Map<Integer, byte[]> live = new HashMap<>();
        Random random = new Random(1);
        all.add(start("garbage", () -> {
            int key = random.nextInt(100);
            byte[] old = live.get(key);
            if (old != null) for (byte b : old) check(b == (byte) key, "lost byte");
            byte[] b = new byte[100 + random.nextInt(20000)];
            Arrays.fill(b, (byte) key);
            live.put(key, b);
        }));
        all.add(start("sleep", () -> { long t = System.nanoTime(); Thread.sleep(5); check(System.nanoTime() - t >= 5_000_000, "woke early"); }));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 64);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", x -> { byte[] b = x.getRequestBody().readAllBytes(); x.sendResponseHeaders(200, b.length); x.getResponseBody().write(b); x.close(); });
        server.start();
        URI uri = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/");
        HttpClient client = HttpClient.newHttpClient();
        String body = "request ".repeat(500);
        for (int i = 0; i < 2; i++)
            all.add(start("http" + i, () -> check(client.send(HttpRequest.newBuilder(uri).POST(HttpRequest.BodyPublishers.ofString(body)).build(), HttpResponse.BodyHandlers.ofString()).body().equals(body), "answer")));
        more(3);
        System.out.println("ready");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        more(5);
        stop = true;
        for (Thread t : all) t.join(60_000);
        for (Thread t : all) check(!t.isAlive(), t.getName() + " does not end");
        System.gc();
        System.out.println("ok");
        System.exit(0);
    }
}
