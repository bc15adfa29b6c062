import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * Iceberg's reference REST catalog on 127.0.0.1. Its own main class listens on all interfaces, which a test must
 * not, so this starts the same servlet over the same JDBC catalog.
 * Arguments: port, warehouse, JDBC address, then more of the catalog's properties as key=value.
 */
public class LoopbackCatalog {
  public static void main(String[] args) throws Exception {
    Map<String, String> properties = new HashMap<>();
    properties.put("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog");
    properties.put("jdbc.schema-version", "V1");
    properties.put("warehouse", args[1]);
    properties.put("uri", args[2]);
    for (int i = 3; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    Catalog catalog = CatalogUtil.buildIcebergCatalog("reference", properties, new Configuration());
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
