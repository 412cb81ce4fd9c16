use bytes::Bytes;
use tidegate_codec::key::{Handle, record_key};
use tidegate_codec::meta::TableInfo;
use tidegate_codec::row::{CellError, ChecksumError};
use tidegate_codec::value::Value;
use tidegate_core::{CommitTs, Diagnostic, RegionId, StartTs, TableId};

use super::*;

/// `ck(id int primary key, a varchar(4), b int)`, table 114, of the reference's §8.1.
const CK: &str = r#"{"id":114,"name":{"O":"ck","L":"ck"},"state":5,"pk_is_handle":true,"cols":[
    {"id":1,"name":{"O":"id","L":"id"},"offset":0,"state":5,"type":{"Tp":3,"Flag":4099,"Flen":11}},
    {"id":2,"name":{"O":"a","L":"a"},"offset":1,"state":5,
     "type":{"Tp":15,"Flag":0,"Flen":4,"Charset":"utf8mb4","Collate":"utf8mb4_bin"}},
    {"id":3,"name":{"O":"b","L":"b"},"offset":2,"state":5,"type":{"Tp":3,"Flag":0,"Flen":11}}]}"#;
/// (1, 'q', NULL) with a checksum of version 2.
const ROW: &str = "80020100000002010071 02b73bd32a";

fn layout() -> Arc<TableLayout> {
    let table: TableInfo = serde_json::from_str(CK).expect("the table's JSON");
    Arc::new(TableLayout::new(Arc::new(table)))
}

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits")).collect()
}

fn change(op: Op, value: Bytes, old_value: Bytes) -> RawChange {
    RawChange {
        op,
        key: record_key(None, TableId(114), &Handle::Int(1)).into(),
        value,
        old_value,
        start_ts: StartTs::new(5),
        commit_ts: CommitTs::new(7),
        region_id: RegionId(1),
    }
}

fn kind(op: Op, value: &str, old_value: &str) -> Option<RowKind> {
    let change = change(op, bytes(value), bytes(old_value));
    Decoder::default().decode(&change, &layout()).expect("the row is sound").map(|row| row.kind)
}

#[test]
fn the_record_and_its_old_value_tell_insert_update_delete_or_nothing() {
    assert_eq!(kind(Op::Put, ROW, ""), Some(RowKind::Insert));
    assert_eq!(kind(Op::Put, ROW, ROW), Some(RowKind::Update));
    assert_eq!(kind(Op::Delete, "", ROW), Some(RowKind::Delete));
    assert_eq!(kind(Op::Delete, "", ""), None, "inserted and deleted by one transaction");
}

#[test]
fn an_event_lends_both_images_and_the_key_without_its_keyspace() {
    let layout = layout();
    let mut change = change(Op::Put, bytes(ROW), bytes("80000100000002010072"));
    change.key = record_key(Some(tidegate_core::KeyspaceId(3)), TableId(120), &Handle::Int(1)).into();
    let row = Decoder::default().decode(&change, &layout).expect("sound").expect("an update");
    assert_eq!(row.key(), record_key(None, TableId(120), &Handle::Int(1)));
    assert_eq!(row.table_id, TableId(120), "the physical table is the key's, also in a partition");
    let value = |image: Option<RowView<'_>>| image.expect("an update has both").by_name("a").map(text);
    assert_eq!((value(row.pre), value(row.row)), (Ok("r".to_owned()), Ok("q".to_owned())));
}

fn text(value: Option<Value<'_>>) -> String {
    match value {
        Some(Value::Text(text)) => text.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_key_that_is_no_record_key_is_an_error_with_its_position() {
    let mut change = change(Op::Put, bytes(ROW), Bytes::new());
    change.key = Bytes::from_static(b"mDB:1");
    let error = Decoder::default().decode(&change, &layout()).expect_err("no record key");
    assert!(matches!(error.reason, Reason::Key(_)));
    assert_eq!(
        (error.table.as_str(), error.commit_ts, error.key.as_ref()),
        ("ck", CommitTs::new(7), &b"mDB:1"[..])
    );
    assert_eq!(error.code(), "TG-DEC-001");
    let expect = "cannot decode the change of table ck (id 114) at 7, key 6d44423a31";
    assert_eq!(error.to_string(), expect);
}

#[test]
fn a_put_without_a_new_row_is_refused_and_never_taken_for_a_delete() {
    let empty = change(Op::Put, Bytes::new(), bytes(ROW));
    let error = Decoder::default().decode(&empty, &layout()).expect_err("no row to read");
    let Reason::Row { image: Image::New, source } = error.reason else { panic!("{:?}", error.reason) };
    assert_eq!(source.reason, CellError::Header);
}

#[test]
fn an_update_whose_old_row_is_damaged_is_refused() {
    let damaged = change(Op::Put, bytes(ROW), bytes("8000ff"));
    let error = Decoder::default().decode(&damaged, &layout()).expect_err("the old row is cut");
    assert!(matches!(error.reason, Reason::Row { image: Image::Old, .. }));
}

#[test]
fn checksums_are_verified_only_on_request_and_name_the_image() {
    let wrong = ROW.replace("b73b", "b73c");
    assert_eq!(kind(Op::Put, &wrong, ROW), Some(RowKind::Update));
    let verify = Decoder::new(Checksums::Verify);
    let (sound, broken) =
        (change(Op::Put, bytes(ROW), bytes(ROW)), change(Op::Put, bytes(ROW), bytes(&wrong)));
    assert!(verify.decode(&sound, &layout()).is_ok());
    let error = verify.decode(&broken, &layout()).expect_err("two bits differ");
    let Reason::Checksum { image, source } = error.reason else { panic!("{:?}", error.reason) };
    assert_eq!(image, Image::Old);
    assert!(matches!(source, ChecksumError::Mismatch { .. }));
}

#[test]
fn the_old_image_of_a_checksum_over_columns_is_not_compared_with_a_later_definition() {
    let by_columns = ROW.replace("02b73bd32a", "0000000000");
    let verify = Decoder::new(Checksums::Verify);
    assert!(verify.decode(&change(Op::Put, bytes(ROW), bytes(&by_columns)), &layout()).is_ok());
    assert!(verify.decode(&change(Op::Put, bytes(&by_columns), bytes(ROW)), &layout()).is_err());
}
