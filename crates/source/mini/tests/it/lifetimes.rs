//! The ownership rules of `spec/mini-cdc.md` §3.2 are lifetimes: breaking them does not compile.

#[test]
fn borrowed_rows_and_ddl_events_cannot_be_kept_or_changed() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/lifetimes/owned_row_may_be_kept.rs");
    cases.compile_fail("tests/lifetimes/row_cannot_escape.rs");
    cases.compile_fail("tests/lifetimes/value_cannot_escape.rs");
    cases.compile_fail("tests/lifetimes/table_info_cannot_be_changed.rs");
    cases.compile_fail("tests/lifetimes/ddl_event_is_read_only_and_borrowed.rs");
}
