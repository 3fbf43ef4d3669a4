// A multi-threaded HTTP server and its clients, then garbage collection under pressure.
import com.sun.net.httpserver.HttpServer;
import java.net.*;
import java.net.http.*;
import java.util.*;
import java.util.concurrent.*;

public class Http {
    public static void main(String[] a) throws Exception {
        HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 64);
        ExecutorService pool = Executors.newFixedThreadPool(8), clients = Executors.newFixedThreadPool(8);
        s.setExecutor(pool);
        s.createContext("/", x -> {
            byte[] b = x.getRequestBody().readAllBytes();
            x.sendResponseHeaders(200, b.length);
            x.getResponseBody().write(b);
            x.close();
        });
        s.start();
        URI u = URI.create("http://127.0.0.1:" + s.getAddress().getPort() + "/");
        HttpClient c = HttpClient.newHttpClient();
        List<Future<Boolean>> l = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            String body = ("request " + i + " ").repeat(50);
            l.add(clients.submit(() -> c.send(HttpRequest.newBuilder(u).POST(HttpRequest.BodyPublishers.ofString(body)).build(),
                HttpResponse.BodyHandlers.ofString()).body().equals(body)));
        }
        int good = 0;
        for (Future<Boolean> f : l) if (f.get()) good++;
        System.out.println("http " + good);
        byte[][] keep = new byte[200][];
        for (int i = 0; i < 100000; i++) keep[i % 200] = new byte[10000];
        System.out.println("gc " + keep.length);
        try { Object o = null; System.out.println(o.hashCode()); } catch (NullPointerException e) { System.out.println("npe"); }
        System.out.println(new String(Runtime.getRuntime().exec("echo child").getInputStream().readAllBytes()).trim());
        s.stop(0); pool.shutdown(); clients.shutdown();
        System.exit(0);
    }
}
