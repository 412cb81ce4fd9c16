//! The reference page of the configuration, generated so that it cannot fall behind the code.

#![cfg(test)]

use std::fmt::Write;

/// Field, default, meaning.
const FIELDS: &[(&str, &str, &str)] = &[
    (
        "data_dir",
        "none: in memory",
        "folder of checkpoints and of the schema history; a restart resumes from it",
    ),
    ("start_ts", "now", "first start only: changes committed after this timestamp are delivered"),
    ("upstream.pd", "required", "addresses of PD, `host:port` each"),
    ("upstream.keyspace", "none", "keyspace id on an API V2 cluster"),
    ("gateway.endpoint", "required", "ingest gateway and catalogue, `host:port` or `http://host:port`"),
    ("gateway.namespace", "\"default\"", "namespace of the collections"),
    (
        "gateway.client_id",
        "\"tidegate\"",
        "name of this process, stable over restarts, unique at the gateway",
    ),
    (
        "tables.include",
        "[\"*.*\"]",
        "`db.table` patterns; `*` any text, `?` one character, a leading `!` excludes",
    ),
    (
        "tables.document_id",
        "{}",
        "`\"db.table\" = \"column\"`: an unsigned integer column, never NULL and unique",
    ),
    ("tables.unadmitted", "\"skip\"", "tables without a document id: `skip` leaves them out, `reject` stops"),
    ("batch.entries_max", "1000", "entries of a batch"),
    ("batch.bytes_max", "\"1MiB\"", "bytes of a batch"),
    ("dispatch.partition_in_flight_max", "4", "unanswered batches of one partition"),
    ("dispatch.in_flight_max", "64", "unanswered batches of all partitions"),
    ("dispatch.buffered_bytes_max", "\"32MiB\"", "rows held in memory; above it the source is slowed"),
    ("dispatch.backoff_min", "\"100ms\"", "first pause before a retry"),
    ("dispatch.backoff_max", "\"5s\"", "longest pause before a retry"),
    ("dispatch.drain_deadline", "\"10s\"", "how long a stop waits for acknowledgements"),
];

fn page() -> String {
    let mut page = String::from(
        "# Configuration of `tidegate run`\n\n\
         A TOML file. An unknown field is refused. Sizes are written as `64MiB` or `10kB`, durations as\n\
         `250ms`, `5s`, `2min` or `1h`. `tidegate run -c FILE --check` tries a file without starting.\n\n\
         | field | default | meaning |\n| --- | --- | --- |\n",
    );
    for (field, default, meaning) in FIELDS {
        writeln!(page, "| `{field}` | {default} | {meaning} |").expect("writing into memory");
    }
    page
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operate/configuration.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(written, page(), "write the second text into docs/operate/configuration.md");
}

#[test]
fn every_field_of_the_reference_is_known_to_the_parser() {
    let mut text = String::new();
    let mut section = "";
    for (field, default, _) in FIELDS {
        let (head, name) = field.rsplit_once('.').unwrap_or(("", field));
        if head != section {
            writeln!(text, "[{head}]").expect("writing into memory");
            section = head;
        }
        let value = match *field {
            "upstream.pd" => "[\"127.0.0.1:2379\"]",
            "gateway.endpoint" | "data_dir" => "\"x\"",
            "start_ts" | "upstream.keyspace" => "7",
            _ => default,
        };
        writeln!(text, "{name} = {value}").expect("writing into memory");
    }
    let options = super::Config::parse(std::path::Path::new("t.toml"), &text).expect("all fields are known");
    let mut defaults = tidegate_adapter::AdapterOptions::new(options.pd_endpoints.clone(), "x");
    (defaults.state_dir, defaults.start_ts, defaults.keyspace) =
        (options.state_dir.clone(), options.start_ts, options.keyspace);
    assert_eq!(format!("{options:?}"), format!("{defaults:?}"), "the defaults of the page are the code's");
}
