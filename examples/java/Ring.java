import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A token travels around a ring of ranks. Each rank works while it has the token, and adds its number to it.
 *
 * <p>With `receives: any`, messages arrive one by one, as in an actor. The messages of this program are numbers, so regular
 * expressions suffice to read them; use a JSON library for anything else.
 */
public final class Ring {
    private static final Pattern WORD = Pattern.compile("\"event\":\"(\\w+)\"");

    private final long me, ranks, laps;
    /** How often this rank has had the token: the state that a checkpoint must contain. */
    private long seen;

    private Ring(String start) {
        me = number(start, "me");
        ranks = number(start, "ranks");
        laps = number(start, "laps");
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        Ring ring = null;
        for (String line; (line = input.readLine()) != null; ) {
            Matcher word = WORD.matcher(line);
            if (!word.find()) throw new IOException("not an event: " + line);
            String event = word.group(1);
            if (event.equals("start")) ring = new Ring(line); // a new life: nothing of an earlier one may remain
            String reply = event.equals("hello") ? "\"contract\":1" : ring.answer(event, line);
            System.out.print("{\"n\":" + number(line, "n") + "," + reply + "}\n");
            System.out.flush();
        }
    }

    private String answer(String event, String line) {
        return switch (event) {
            case "save" -> "\"state\":" + seen;
            case "restore" -> {
                seen = line.contains("\"state\":null") ? 0 : number(line, "state");
                yield "\"do\":[]";
            }
            // Rank 0 creates the token.
            case "next" -> seen == 0 && me == 0 ? pass(0) : "\"do\":[]";
            case "message" -> pass(number(line, "content"));
            default -> "\"do\":[]";
        };
    }

    /** Works, and passes the token to the next rank. */
    private String pass(long token) {
        seen += 1;
        String steps = "";
        if (seen <= laps) {
            String send = "{\"do\":\"send\",\"to\":" + (me + 1) % ranks + ",\"content\":" + (token + me) + "}";
            steps = "{\"do\":\"compute\",\"for\":5000000}," + send;
        }
        // Rank 0 receives the token once more at the end.
        if (seen == (me == 0 ? laps + 1 : laps)) {
            steps += (steps.isEmpty() ? "" : ",") + "{\"do\":\"finish\",\"result\":" + token + "}";
        }
        return "\"do\":[" + steps + "],\"progress\":{\"done\":" + seen + ",\"total\":" + laps + "}";
    }

    private static long number(String line, String field) {
        Matcher found = Pattern.compile("\"" + field + "\":(-?\\d+)").matcher(line);
        if (!found.find()) throw new IllegalArgumentException("no field " + field + ": " + line);
        return Long.parseLong(found.group(1));
    }
}
