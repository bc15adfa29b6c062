// Reads Iceberg tables with Trino for varve's tests, as reader.py does with other engines: one JSON
// request a line, one JSON answer a line. Values cross as what they are stored as. Run from its source:
// java -cp 'lib/*' TrinoReader.java
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.trino.Session;
import io.trino.plugin.iceberg.IcebergPlugin;
import io.trino.spi.type.ArrayType;
import io.trino.spi.type.MapType;
import io.trino.spi.type.RowType;
import io.trino.spi.type.Type;
import io.trino.testing.DistributedQueryRunner;
import io.trino.testing.MaterializedResult;
import io.trino.testing.MaterializedRow;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;

public class TrinoReader {
    static final ObjectMapper json = new ObjectMapper();
    static final Map<String, String> catalogs = new HashMap<>();
    static final DateTimeFormatter MICROS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS");

    public static void main(String[] args) throws Exception {
        // What the engine prints must not stand among the answers.
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        Session session = io.trino.testing.TestingSession.testSessionBuilder().setTimeZoneKey(io.trino.spi.type.TimeZoneKey.UTC_KEY).build();
        DistributedQueryRunner runner = DistributedQueryRunner.builder(session).setWorkerCount(0).build();
        runner.installPlugin(new IcebergPlugin());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = json.createObjectNode();
            try {
                answer.set("columns", read(runner, json.readTree(line)));
            }
            catch (Throwable e) { // the engine's own refusal is an answer
                answer.removeAll();
                StringBuilder text = new StringBuilder();
                for (Throwable t = e; t != null; t = t.getCause()) {
                    text.append(text.isEmpty() ? "" : ": ").append(t.getClass().getSimpleName()).append(": ").append(t.getMessage());
                }
                answer.put("error", text.toString());
            }
            out.println(json.writeValueAsString(answer));
        }
        System.exit(0);
    }

    static ArrayNode read(DistributedQueryRunner runner, JsonNode req) {
        String uri = req.path("uri").asText("");
        String token = req.path("token").asText("");
        String catalog = catalogs.computeIfAbsent(uri + " " + token + " " + req.path("properties"), key -> {
            String name = "c" + catalogs.size();
            Map<String, String> p = new HashMap<>();
            if (!uri.isEmpty()) { // else the properties say it all
                p.put("iceberg.catalog.type", "rest");
                p.put("iceberg.rest-catalog.uri", uri);
                p.put("fs.hadoop.enabled", "true");
            }
            if (!token.isEmpty()) {
                p.put("iceberg.rest-catalog.security", "OAUTH2");
                p.put("iceberg.rest-catalog.oauth2.token", token);
            }
            req.path("properties").fields().forEachRemaining(e -> p.put(e.getKey(), e.getValue().asText()));
            runner.createCatalog(name, "iceberg", p);
            return name;
        });
        String[] name = req.get("metadata").asText().split("\\.(?=[^.]*$)");
        StringBuilder sql = new StringBuilder("SELECT ");
        List<String> columns = new ArrayList<>();
        req.path("columns").forEach(c -> columns.add("\"" + c.asText() + "\""));
        if (req.path("lineage").asBoolean()) {
            sql.append("\"$row_id\" AS \"_row_id\", \"$last_updated_sequence_number\" AS \"_last_updated_sequence_number\", ");
        }
        sql.append(columns.isEmpty() ? "*" : String.join(", ", columns));
        sql.append(" FROM ").append(catalog).append(".\"").append(name[0]).append("\".\"").append(name[1]).append("\"");
        if (req.path("snapshot").asLong() != 0) {
            sql.append(" FOR VERSION AS OF ").append(req.get("snapshot").asLong());
        }
        if (!req.path("filter").asText("").isEmpty()) {
            sql.append(" WHERE ").append(req.get("filter").asText());
        }
        MaterializedResult got = runner.execute(sql.toString());
        ArrayNode out = json.createArrayNode();
        for (int i = 0; i < got.getColumnNames().size(); i++) {
            ObjectNode column = out.addObject();
            column.put("name", got.getColumnNames().get(i));
            Type type = got.getTypes().get(i);
            boolean nested = type instanceof RowType || type instanceof ArrayType || type instanceof MapType;
            String kind = nested ? "nested" : kind(type.getDisplayName());
            column.put("kind", kind);
            ArrayNode values = column.putArray("values");
            for (MaterializedRow row : got.getMaterializedRows()) {
                if (nested && row.getField(i) != null) {
                    values.add(nested(type, row.getField(i)).toString());
                }
                else {
                    add(values, kind, row.getField(i));
                }
            }
        }
        return out;
    }

    static String kind(String type) {
        boolean tz = type.endsWith("with time zone");
        if (type.startsWith("timestamp(6)")) {
            return tz ? "timestamp_us_tz" : "timestamp_us";
        }
        if (type.startsWith("timestamp(9)")) {
            return tz ? "timestamp_ns_tz" : "timestamp_ns";
        }
        if (type.startsWith("decimal")) {
            return "decimal";
        }
        return switch (type) {
            case "boolean" -> "boolean";
            case "integer", "bigint" -> "int";
            case "real" -> "float";
            case "double" -> "double";
            case "date" -> "date";
            case "time(6)" -> "time_us";
            case "varchar", "uuid" -> "string";
            case "varbinary" -> "binary";
            default -> throw new IllegalArgumentException("no text form for type " + type);
        };
    }

    static void add(ArrayNode values, String kind, Object v) {
        switch (v) {
            case null -> values.addNull();
            case Boolean b -> values.add(b);
            case Integer i -> values.add(i);
            case Long l -> values.add(l);
            case Float f -> values.add(number(f));
            case Double d -> values.add(number(d));
            case BigDecimal d -> values.add(d.toPlainString());
            case LocalDate d -> values.add(d.toEpochDay());
            case LocalTime t -> values.add(t.toNanoOfDay() / 1000);
            case LocalDateTime t -> values.add(units(kind, t.toInstant(ZoneOffset.UTC)));
            case ZonedDateTime t -> values.add(units(kind, t.toInstant()));
            case byte[] b -> values.add(HexFormat.of().formatHex(b));
            default -> values.add(v.toString());
        }
    }

    // A nested value as JSON: a map is a list of its entries, what JSON has no form for is text.
    static JsonNode nested(Type type, Object v) {
        switch (v) {
            case null -> {
                return json.getNodeFactory().nullNode();
            }
            case MaterializedRow row -> {
                ObjectNode out = json.createObjectNode();
                List<RowType.Field> fields = ((RowType) type).getFields();
                for (int i = 0; i < fields.size(); i++) {
                    out.set(fields.get(i).getName().orElseThrow(), nested(fields.get(i).getType(), row.getField(i)));
                }
                return out;
            }
            case List<?> list -> {
                ArrayNode out = json.createArrayNode();
                list.forEach(x -> out.add(nested(((ArrayType) type).getElementType(), x)));
                return out;
            }
            case Map<?, ?> map -> {
                ArrayNode out = json.createArrayNode();
                // The client of the tests has lost the order of entries: they are sorted by their keys.
                map.entrySet().stream().sorted(Comparator.comparing(e -> e.getKey().toString())).forEach(e -> {
                    ObjectNode entry = out.addObject();
                    entry.set("key", nested(((MapType) type).getKeyType(), e.getKey()));
                    entry.set("value", nested(((MapType) type).getValueType(), e.getValue()));
                });
                return out;
            }
            case LocalDateTime t -> {
                return json.getNodeFactory().textNode(t.format(MICROS));
            }
            case Double d when Double.isFinite(d) -> {
                return json.getNodeFactory().numberNode(d);
            }
            default -> {
                ArrayNode one = json.createArrayNode();
                String kind = kind(type.getDisplayName());
                add(one, kind, kind.equals("date") ? v.toString() : v);
                return one.get(0);
            }
        }
    }

    // What Go's strconv.ParseFloat reads; the shortest digits name the value.
    static String number(Number v) {
        return v.toString().replace("Infinity", "Inf");
    }

    static long units(String kind, Instant t) {
        long per = kind.startsWith("timestamp_ns") ? 1_000_000_000L : 1_000_000L;
        return Math.addExact(Math.multiplyExact(t.getEpochSecond(), per), t.getNano() / (1_000_000_000L / per));
    }
}
