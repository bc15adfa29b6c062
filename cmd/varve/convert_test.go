package main

import (
	"slices"
	"strings"
	"testing"
)

// A sink's configuration as its users have it.
const sinkJSON = `{"name":"orders","config":{
	"connector.class":"io.tabular.iceberg.connect.IcebergSinkConnector","tasks.max":"2","topics":"dbserver1.shop.orders,dbserver1.shop.people",
	"iceberg.tables":"shop.orders,shop.people","iceberg.tables.cdc-field":"_cdc.op","iceberg.tables.auto-create-enabled":true,"iceberg.tables.evolve-schema-enabled":"true",
	"iceberg.tables.default-id-columns":"id","iceberg.table.shop.orders.id-columns":"tenant, order_id","iceberg.table.shop.orders.partition-by":"days(created_at),bucket(tenant, 16)",
	"iceberg.control.commit.interval-ms":60000,"iceberg.control.topic":"control","iceberg.tables.auto-create-props.write.parquet.compression-codec":"zstd",
	"iceberg.catalog.type":"rest","iceberg.catalog.uri":"https://catalog.example:8181","iceberg.catalog.credential":"id:hidden-1","iceberg.catalog.warehouse":"s3a://lake/varve",
	"iceberg.catalog.s3.endpoint":"http://127.0.0.1:9000","iceberg.catalog.client.region":"us-east-1","iceberg.catalog.s3.secret-access-key":"hidden-2",
	"iceberg.kafka.bootstrap.servers":"k1:9092,k2:9092","iceberg.catalog.s3.sse.type":"kms",
	"value.converter":"io.confluent.connect.avro.AvroConverter","value.converter.schema.registry.url":"http://registry:8081","value.converter.basic.auth.user.info":"me:hidden-3",
	"transforms":"debezium","transforms.debezium.type":"io.tabular.iceberg.connect.transforms.DebeziumTransform"}}`

func TestConfigConvert(t *testing.T) {
	code, out, errs := varveWith(t, nil, sinkJSON, "config", "convert", "-")
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if all := out + errs; strings.Contains(all, "hidden-") {
		t.Errorf("a secret is printed:\n%s", all)
	}
	wantLines(t, out, "iceberg.control.topic: the log is varve's own topic", "iceberg.catalog.s3.sse.type: it has no counterpart", "VARVE_CATALOG_CREDENTIAL", "VARVE_SCHEMA_REGISTRY_PASSWORD")
	wantLines(t, errs, "iceberg.catalog.s3.sse.type: it has no counterpart")
	cfg, err := parseConfig("converted", []byte(out))
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cfg.Brokers, []string{"k1:9092", "k2:9092"}) || cfg.Warehouse != "s3://lake/varve?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=us-east-1" ||
		cfg.Catalog.Type != "rest" || cfg.Catalog.URI != "https://catalog.example:8181" || !slices.Equal(cfg.SchemaRegistry.URLs, []string{"http://registry:8081"}) || cfg.SchemaRegistry.User != "me" {
		t.Errorf("%+v", cfg)
	}
	o, p := cfg.Tables[0], cfg.Tables[1]
	if o.Name != "shop.orders" || o.Source.Topic != "dbserver1.shop.orders" || o.Source.Format != "debezium-avro" || !slices.Equal(o.Key, []string{"tenant", "order_id"}) ||
		!slices.Equal(o.PartitionBy, []string{"day(created_at)", "bucket(16, tenant)"}) || o.CommitInterval.millis() != 60_000 || o.Properties["write.parquet.compression-codec"] != "zstd" ||
		len(o.Source.Options) != 0 {
		t.Errorf("%+v", o)
	}
	if p.Name != "shop.people" || p.Source.Topic != "dbserver1.shop.people" || !slices.Equal(p.Key, []string{"id"}) || len(p.PartitionBy) != 0 {
		t.Errorf("%+v", p)
	}
}

func TestConfigConvertSaysWhatIsMissing(t *testing.T) {
	for _, c := range []struct{ in, comment, file string }{
		{`{"topics":"a","iceberg.tables":"x.a","iceberg.tables.route-field":"kind","iceberg.table.x.a.route-regex":"a|b"}`, "takes its own events", `route_match: "a|b"`},
		{`{"topics":"a","iceberg.tables":"x.a","iceberg.tables.route-field":"kind"}`, "no route-regex says", `route_by: "kind"`},
		{`{"topics":"a","iceberg.tables.dynamic-enabled":"true","iceberg.tables.route-field":"db.table"}`, "a table is made for each of its texts", `name: "${route}"`},
		{`{"topics":"a,b","iceberg.tables":"x.a","iceberg.tables.route-field":"kind"}`, "entries of its own", "append_only: true"},
		{`{"topics":"a,b","iceberg.tables":"x.a"}`, "a table reads one", `topic: "a"`},
		{`{"topics":"a","iceberg.tables":"x.a","iceberg.tables.default-id-columns":"id"}`, "the sink only appends", "append_only: true"},
		{`{"topics":"a","iceberg.tables":"x.a","iceberg.tables.upsert-mode-enabled":"true","iceberg.tables.default-id-columns":"id"}`, "worker's configuration", `key: ["id"]`},
		{`{"topics":"a","iceberg.tables":"x.a","value.converter":"io.confluent.connect.protobuf.ProtobufConverter"}`, "worker's configuration", "format: rows-protobuf"},
		{`{"topics":"a","iceberg.tables":"x.a","iceberg.catalog.type":"hive","iceberg.catalog.uri":"thrift://h:9083"}`, "iceberg.catalog.type hive", "columns.new"},
		{`{"topics":"a","iceberg.tables":"x.a","transforms":"r","transforms.r.type":"org.apache.kafka.connect.transforms.ReplaceField$Value"}`, "not transformed on their way", "format: rows-json"},
		{`{"topics.regex":"a.*","iceberg.tables":"x.a"}`, "topics.regex", `topic_pattern: "a.*"`},
		{`{"connector.class":"FileStreamSink","topics":"a","iceberg.tables":"x.a"}`, "is no Iceberg sink", ""},
	} {
		code, out, errs := varveWith(t, nil, c.in, "config", "convert", "-")
		if code != exitDone || !strings.Contains(out, c.comment) || !strings.Contains(out, c.file) || !strings.Contains(errs, c.comment) {
			t.Errorf("%s: exit code %d\n%s\n%s", c.in, code, out, errs)
		}
	}
	for _, in := range []string{"", "[]", `{"a":{}}`, `{"config":{"topics":["a"]}}`} {
		if code, _, _ := varveWith(t, nil, in, "config", "convert", "-"); code != exitUsage {
			t.Errorf("%q: exit code %d", in, code)
		}
	}
}
