//! Mistakes of a person and of the world: what is printed, and the exit code.

use std::net::TcpListener;
use std::process::Output;

use crate::process::{recorded, run, stderr, stdout, text};

/// An error that says what happened, gives `parts`, a hint and a code that has a page.
fn check_failed(output: &Output, exit_code: i32, parts: &[&str]) {
    let printed = stderr(output);
    assert_eq!(output.status.code(), Some(exit_code), "{printed}");
    let error = printed.find("error: ").map(|at| &printed[at..]).expect("an error");
    assert!(error.contains("\n  hint: ") && error.contains("\n  code: TG-"), "{error}");
    for part in parts {
        assert!(error.contains(part), "{error}\n  should say {part}");
    }
    let code = error.split("  code: ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a code");
    let page = format!("{}/../../../docs/errors/{code}.md", env!("CARGO_MANIFEST_DIR"));
    assert!(std::path::Path::new(&page).exists(), "{code} has no page");
}

#[test]
fn a_port_in_use_names_the_port_and_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let output = run(&["demo", "--once", "--listen", &address]);
    check_failed(&output, 1, &[&format!("cannot listen on {address}"), "--listen"]);
}

#[test]
fn a_data_directory_that_cannot_be_used_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").expect("writable");
    let output = run(&["demo", "--once", "--listen", "127.0.0.1:0", "--data-dir", text(&file)]);
    check_failed(&output, 1, &["cannot use the data directory", "--data-dir"]);
    assert_eq!(stdout(&output), "");
}

#[test]
fn a_damaged_history_says_where() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cut = folder.path().join("cut.history.jsonl.zst");
    let whole = std::fs::read(recorded("types.history.jsonl.zst")).expect("recorded data");
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("writable");
    let output = run(&["inspect", text(&cut)]);
    check_failed(&output, 1, &["cut.history.jsonl.zst is truncated or damaged after"]);
    let output = run(&["verify", text(&cut), "--expected", text(&recorded("types.expected.json.zst"))]);
    check_failed(&output, 1, &["cut.history.jsonl.zst is truncated or damaged after"]);
    let output = run(&["inspect", "nowhere.history.jsonl.zst"]);
    check_failed(&output, 1, &["cannot access nowhere.history.jsonl.zst"]);
}

fn run_config(text_of_file: &str) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tidegate.toml");
    std::fs::write(&path, text_of_file).expect("writable");
    run(&["run", "-c", text(&path)])
}

#[test]
fn an_unknown_pd_address_is_named() {
    let unused = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = unused.local_addr().expect("bound");
    drop(unused);
    let config = format!("[upstream]\npd = [\"{address}\"]\n[gateway]\nendpoint = \"127.0.0.1:1\"\n");
    check_failed(&run_config(&config), 1, &[&address.to_string()]);
}

#[test]
fn mistakes_in_the_configuration_name_the_field() {
    let output = run_config("[upstream]\npdd = []\n");
    check_failed(&output, 2, &["line 2, field `upstream.pdd`", "unknown field `pdd`"]);
    let output = run_config("[upstream]\npd = [\"a:1\"]\n[gateway]\nendpoint = \"\"\n");
    check_failed(&output, 2, &["field `gateway.endpoint`"]);
    check_failed(&run(&["run", "-c", "nowhere.toml"]), 2, &["cannot read the configuration nowhere.toml"]);
}
