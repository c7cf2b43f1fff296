import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, one after the other in one process, since most of a tool's time is the start of its own.
 *
 * A line of standard input is a main class and its arguments, each in Base64 behind a dot; the answer is a line with
 * the exit code, the standard output and the standard error, likewise. What ends a process only ends the tool.
 */
public final class ToolRunner {
    private static final long LONGEST_S = 180;
    private static final int TOOK_TOO_LONG = 124;

    /** Collects what the tool that runs prints. */
    private static final class Collected extends OutputStream {
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int one) {
            bytes.write(one);
        }

        @Override
        public synchronized void write(byte[] some, int start, int length) {
            bytes.write(some, start, length);
        }

        synchronized byte[] take() {
            byte[] taken = bytes.toByteArray();
            bytes.reset();
            return taken;
        }
    }

    private static volatile CompletableFuture<Integer> ended;

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        // Set once: Scala's and the logger's streams are those that they find when they are loaded.
        Collected out = new Collected();
        Collected err = new Collected();
        System.setOut(new PrintStream(out, true, "UTF-8"));
        System.setErr(new PrintStream(err, true, "UTF-8"));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = Arrays.stream(line.split(" ")).map(ToolRunner::decoded).toArray(String[]::new);
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            System.out.flush();
            System.err.flush();
            answers.println(code + " " + encoded(out.take()) + " " + encoded(err.take()));
            answers.flush();
        }
    }

    private static int run(String mainClass, String[] arguments) throws Exception {
        CompletableFuture<Integer> code = new CompletableFuture<>();
        ended = code;
        Thread tool = new Thread(() -> {
            try {
                Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
                code.complete(0);
            } catch (InvocationTargetException failed) {
                failed.getCause().printStackTrace();
                code.complete(1);
            } catch (Throwable failed) {
                failed.printStackTrace();
                code.complete(1);
            }
        }, mainClass);
        tool.setDaemon(true);
        tool.start();
        try {
            return code.get(LONGEST_S, TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            for (StackTraceElement place : tool.getStackTrace()) {
                System.err.println("\tat " + place);
            }
            return TOOK_TOO_LONG;
        }
    }

    /** Nothing of a process comes after its exit: the thread that asked for it rests. */
    private static void end(int code) {
        ended.complete(code);
        while (true) {
            LockSupport.park();
        }
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private static String encoded(byte[] bytes) {
        return "." + Base64.getEncoder().encodeToString(bytes);
    }
}
