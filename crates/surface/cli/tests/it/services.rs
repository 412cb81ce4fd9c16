//! `playground`, `fabric`, `run` and `tail` as processes that know of each other only by address.

use std::time::Duration;

use serde_json::Value;

use crate::process::{Running, get, run, stdout, text};

/// End of the demo's history, and a moment shortly before, when only its last statements are to come: the
/// `after_ts` of the recording's expectations.
const END: &str = "470829764953505799";
const BEFORE_NOTE: &str = "470829764782850071";

fn playground() -> (Running, String) {
    let mut playground = Running::start(&["playground"]);
    let rest = playground.line("history demo is loaded; PD listens on ");
    let pd = rest.split(' ').next().expect("an address").to_owned();
    (playground, pd)
}

#[test]
fn run_carries_a_playground_into_a_fabric() {
    let (_playground, pd) = playground();
    let mut fabric = Running::start(&["fabric", "--gateway", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    let rest = fabric.line("ingest gateway on ");
    let (gateway, page) = rest.split_once(", page on http://").expect("both addresses");
    let page = page.split(' ').next().expect("an address");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("tidegate.toml");
    let state = folder.path().join("state");
    // The start of the recording: its base_ts.
    let written = format!(
        "data_dir = {state:?}\nstart_ts = 470829761060405253\n[upstream]\npd = [\"{pd}\"]\n\
         [gateway]\nendpoint = \"http://{gateway}\"\n[tables]\ninclude = [\"demo.airport\"]\n"
    );
    std::fs::write(&config, written).expect("writable");
    let _run = Running::start(&["run", "-c", text(&config)]);
    assert_eq!(documents_up_to(page, "demo.airport", END), 3305);
    let (status, _) = get(page, "/api/v1/search?collection=demo.emoji&q=cat");
    assert_eq!(status, 404, "only what the configuration names is followed");
}

/// Waits, as a reader may, until the collection is there and complete up to `ts`, and counts its documents.
#[expect(clippy::disallowed_methods, reason = "a test asks another process again and again")]
fn documents_up_to(page: &str, collection: &str, ts: &str) -> u64 {
    let path = format!("/api/v1/search?collection={collection}&limit=1&at_least={ts}&wait_ms=20000");
    loop {
        let (status, body) = get(page, &path);
        if status == 200 {
            let answer: Value = serde_json::from_str(&body).expect("JSON");
            return answer["total"].as_u64().expect("a number");
        }
        assert_eq!(status, 404, "{body}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn tail_prints_the_last_changes_of_the_demo_in_order() {
    let (_playground, pd) = playground();
    let range = ["--from", BEFORE_NOTE, "--until", END];
    let tables = ["demo.note", "demo.remark"];
    let output = run(&[&["tail", "--pd", &pd], &range[..], &tables[..]].concat());
    let printed = stdout(&output);
    let lines: Vec<&str> =
        printed.lines().filter_map(|line| line.split_once("  ")).map(|(_, rest)| rest).collect();
    // What the recording's script did, with the millisecond columns left out.
    let expected = [
        "ddl     create table note (id bigint unsigned primary key, body text, at datetime(3))",
        "insert  demo.note  id=1  body=\"first\"",
        "insert  demo.note  id=2  body=\"second\"",
        "ddl     truncate table note",
        "insert  demo.note  id=3  body=\"third\"",
        "ddl     RENAME TABLE `demo`.`note` TO `demo`.`remark`",
        "update  demo.remark  id=3  body=\"third\"→\"third, renamed\"",
    ];
    assert_eq!(lines.len(), expected.len(), "{printed}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n  should begin with {expected}");
    }
}

#[test]
fn tail_prints_json_lines() {
    let (_playground, pd) = playground();
    let output = run(&[
        "tail",
        "--pd",
        &pd,
        "--from",
        BEFORE_NOTE,
        "--until",
        END,
        "--json",
        "demo.remark",
        "demo.note",
    ]);
    let printed = stdout(&output);
    let lines: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect();
    let last = lines.last().expect("lines");
    assert_eq!((&last["op"], &last["table"]), (&"update".into(), &"demo.remark".into()));
    assert_eq!((&last["old"]["body"], &last["row"]["body"]), (&"third".into(), &"third, renamed".into()));
}
