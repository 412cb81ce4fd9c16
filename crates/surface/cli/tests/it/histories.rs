//! `inspect` and `verify` on recorded histories.

use crate::process::{recorded, run, stdout, text};

fn verify(history: &str, expected: &str) -> (bool, String) {
    let history = recorded(&format!("{history}.history.jsonl.zst"));
    let expected = recorded(&format!("{expected}.expected.json.zst"));
    let output = run(&["verify", text(&history), "--expected", text(&expected)]);
    (output.status.success(), stdout(&output))
}

fn check_equal(name: &str, tables: usize, snapshots: usize) {
    let (success, printed) = verify(name, name);
    let expected = format!("equal: {tables} tables, {snapshots} snapshots, ");
    assert!(success && printed.starts_with(&expected), "{name}: {printed}");
}

// Counts of tables and snapshots are those of the recorded expectations.

#[test]
fn the_demo_equals_what_tidb_answered() {
    check_equal("demo", 3, 3);
}

#[test]
fn the_bank_equals_what_tidb_answered() {
    check_equal("bank", 2, 19);
}

#[test]
fn the_bank_under_splits_merges_and_a_killed_store_equals_what_tidb_answered() {
    check_equal("bank-live", 2, 20);
}

#[test]
fn every_column_type_equals_what_tidb_answered() {
    check_equal("types", 20, 6);
}

#[test]
fn every_kind_of_ddl_equals_what_tidb_answered() {
    check_equal("ddl", 9, 9);
}

#[test]
fn partitions_that_come_go_and_are_reorganised_equal_what_tidb_answered() {
    check_equal("partition", 8, 4);
}

#[test]
fn random_schemas_equal_what_tidb_answered() {
    check_equal("random-11", 13, 10);
    check_equal("random-12", 11, 10);
    check_equal("random-13", 6, 10);
}

#[test]
fn differences_are_listed_and_end_with_an_error_code() {
    // The tables of another recording are all missing.
    let (success, printed) = verify("demo", "bank");
    assert!(!success);
    let first = printed.lines().next().expect("a difference");
    assert!(first.starts_with("bank.account at "), "{first}");
    assert!(first.ends_with("column *: ours there is no such table, TiDB's it exists"), "{first}");
    assert!(printed.lines().last().is_some_and(|line| line.starts_with("different: ")), "{printed}");
}

#[test]
fn inspect_shows_tables_versions_and_ddl() {
    let history = recorded("demo.history.jsonl.zst");
    let output = run(&["inspect", text(&history)]);
    let printed = stdout(&output);
    assert!(output.status.success());
    let words = |prefix: &str| -> Vec<String> {
        let line = printed.lines().find(|line| line.starts_with(prefix));
        line.unwrap_or_else(|| panic!("no line {prefix}")).split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(words("log")[1], "12423", "the header of the recording");
    // Columns, partitions and rows as the recording's expectations have them at its end.
    assert_eq!(words("demo.emoji")[1..4], ["10", "–", "1915"]);
    assert_eq!(words("demo.airport")[1..4], ["8", "4", "3305"]);
    assert_eq!(words("demo.remark")[1..4], ["3", "–", "1"]);
    assert!(printed.contains("RenameTable: RENAME TABLE `demo`.`note` TO `demo`.`remark`"), "{printed}");
}
