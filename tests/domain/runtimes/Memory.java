// A live set that changes under threads of garbage, checked; then direct buffers, a mapped file and many threads.
import java.nio.*;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

public class Memory {
    static long work(int seed) {
        Random random = new Random(seed);
        Map<Integer, byte[]> live = new HashMap<>();
        long made = 0;
        for (int i = 0; i < 20000; i++) {
            int key = random.nextInt(200), size = 100 + random.nextInt(20000);
            byte[] b = new byte[size];
            Arrays.fill(b, (byte) key);
            live.put(key, b);
            made += size;
        }
        for (Map.Entry<Integer, byte[]> e : live.entrySet())
            for (byte b : e.getValue()) if (b != (byte) (int) e.getKey()) throw new IllegalStateException("lost byte");
        return made;
    }

    public static void main(String[] a) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<Long>> l = new ArrayList<>();
        for (int i = 0; i < 4; i++) { int seed = i; l.add(pool.submit(() -> work(seed))); }
        long made = 0;
        for (Future<Long> f : l) made += f.get();
        long runs = 0;
        for (var b : java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()) runs += b.getCollectionCount();
        System.out.println("gc " + (made > 700_000_000L) + " " + (runs > 5));
        ByteBuffer d = ByteBuffer.allocateDirect(8 << 20);
        while (d.hasRemaining()) d.putLong(42);
        Path p = Files.createTempFile("map", "");
        try (FileChannel c = FileChannel.open(p, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer m = c.map(FileChannel.MapMode.READ_WRITE, 0, 8 << 20);
            d.flip();
            m.put(d);
            m.force();
        }
        System.out.println("map " + (ByteBuffer.wrap(Files.readAllBytes(p)).getLong(8 << 19) == 42));
        CountDownLatch latch = new CountDownLatch(200);
        for (int i = 0; i < 200; i++) new Thread(latch::countDown).start();
        latch.await();
        System.out.println("threads " + latch.getCount());
        try { deep(0); } catch (StackOverflowError e) { System.out.println("overflow"); }
        pool.shutdown();
    }

    static int deep(int n) { return deep(n + 1) + 1; }
}
