import com.sun.net.httpserver.HttpServer;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URL;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * An HTTP server on the JVM, frozen when it has served enough requests for its classes to be loaded.
 *
 * A clone has the server's listening socket and threads as they were, and makes one request to it, with its first
 * argument as the path, over its own loopback. What the server answers is its output.
 */
public final class Server {
    static String get(int port, String path) throws Exception {
        String encoded = URLEncoder.encode(path, StandardCharsets.UTF_8).replace("+", "%20");
        HttpURLConnection c = (HttpURLConnection) new URL("http://127.0.0.1:" + port + "/" + encoded).openConnection();
        c.setRequestProperty("Connection", "close");
        try (InputStream in = c.getInputStream()) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    public static void main(String[] args) throws Exception {
        AtomicInteger served = new AtomicInteger();
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0), 16);
        server.createContext("/", exchange -> {
            String path = exchange.getRequestURI().getPath().substring(1);
            byte[] answer = ("request " + served.incrementAndGet() + ": " + new StringBuilder(path).reverse()).getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
        int port = server.getAddress().getPort();
        for (int i = 0; i < 200; i++) get(port, "warm up " + i);
        System.gc();
        // Returns in every clone.
        try (FileOutputStream state = new FileOutputStream("/sys/power/state")) {
            state.write("freeze\n".getBytes(StandardCharsets.UTF_8));
        }
        System.out.println(get(port, Files.readAllLines(Paths.get("/sys/doppel/args")).get(0)));
        System.exit(0);
    }
}
