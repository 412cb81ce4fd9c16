//! Rows of the reference, decoded; and damage, refused.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_core::{ColumnId, Ts};

use super::*;
use crate::ddl::ActionType;
use crate::event::DdlEvent;
use crate::key::Handle;
use crate::meta::{DefaultValue, SchemaState, TableInfo};
use crate::testing::{common_key_table, hex, int_key_table, layout, shown, table};

/// All columns of a row as text.
fn texts(layout: &TableLayout, handle: Handle<'_>, value: &str) -> Vec<String> {
    let value = hex(value);
    let row = layout.row(handle, &value).unwrap();
    (0..layout.table().columns.len()).map(|index| shown(&row.column(index).unwrap())).collect()
}

fn read(table: TableInfo, handle: Handle<'_>, value: &str) -> Vec<String> {
    texts(&layout(table), handle, value)
}

#[test]
fn a_v2_row_tells_values_nulls_and_absent_columns_apart() {
    let mut table = table(&["int", "int", "int", "varchar(10)", "int"]);
    table.columns[4].origin_default = Some(DefaultValue::Text("7".into()));
    let row = "80 00 0200 0100 02 04 03 0100 0300 05 6162";
    assert_eq!(read(table, Handle::Int(1), row), ["NULL", "5", "NULL", "ab", "7"]);
}

#[test]
fn a_large_v2_row_has_wide_ids_and_offsets() {
    let mut table = table(&["int", "int"]);
    table.columns[0].id = ColumnId(256);
    let row = "80 01 0100 0100 00010000 02000000 01000000 01";
    assert_eq!(read(table, Handle::Int(1), row), ["1", "NULL"]);
}

#[test]
fn integers_of_all_widths_are_read_by_the_columns_sign() {
    let types =
        ["bigint", "tinyint", "smallint unsigned", "mediumint", "int unsigned", "bigint unsigned", "year"];
    let row = "80 00 0600 0000 02 03 04 05 06 07 0100 0300 0700 0b00 1300 1500 \
               ff ffff 000080ff ffffffff ffffffffffffffff e407";
    let expected = ["1", "-1", "65535", "-8388608", "4294967295", "18446744073709551615", "2020"];
    assert_eq!(read(int_key_table(&types), Handle::Int(1), row), expected);
}

#[test]
fn strings_enums_sets_bits_and_json_are_read() {
    let types = [
        "int",
        "char(8)",
        "varchar(8)",
        "binary(4)",
        "varbinary(4)",
        "text",
        "blob",
        "enum(a,b,c)",
        "set(a,b,c)",
        "bit(10)",
        "json",
        "varchar(8) gbk_bin",
        "varchar(8) latin1_bin",
    ];
    let row = "80 00 0c00 0000 02 03 04 05 06 07 08 09 0a 0b 0c 0d \
               0200 0600 0a00 0c00 1100 1300 1400 1500 1600 5100 5400 5600 \
               6162 61622020 01020000 0102 68656c6c6f 00ff 02 05 51 \
               01 020000003a0000001e00000001001f000000010003200000000932000000 6162 \
               02000000120000000401000000 0400000000 0100000000000000 e4b8ad c3a9";
    let expected = [
        "1",
        "ab",
        "ab  ",
        "\u{1}\u{2}\0\0",
        "\u{1}\u{2}",
        "hello",
        "[00, ff]",
        "b",
        "a,c",
        "\0Q",
        "{\"a\": [true, null], \"b\": 1}",
        "中",
        "é",
    ];
    assert_eq!(read(int_key_table(&types), Handle::Int(1), row), expected);
}

#[test]
fn numbers_and_times_are_read_in_their_own_forms() {
    let numbers = ["int", "float", "double", "decimal(20,6)", "float unsigned"];
    let row = "80 00 0400 0000 02 03 04 05 0800 1000 1c00 2400 \
               c0091eb860000000 3ffbffffffffffff 14067fffffffffcfc6f5a78f bfb99999a0000000";
    let expected = ["1", "3.14", "-2.5", "-12345.678000", "0.1"];
    assert_eq!(read(int_key_table(&numbers), Handle::Int(1), row), expected);

    let times = ["int", "date", "datetime(6)", "timestamp(3)", "time(2)", "year"];
    let row = "80 00 0500 0000 02 03 04 05 06 0800 1000 1800 2000 2200 \
               0000000000a8a519 40e201fb7e8bb119 20a1071425a8a519 80dd15119dfcffff b207";
    let expected =
        ["1", "2020-02-20", "2023-11-05 23:59:59.123456", "2020-02-20 02:20:20.500", "-01:02:03.45", "1970"];
    assert_eq!(read(int_key_table(&times), Handle::Int(1), row), expected);
    let zeros = "80 00 0500 0000 02 03 04 05 06 0100 0200 0300 0400 0500 00 00 00 00 00";
    let expected =
        ["2", "0000-00-00", "0000-00-00 00:00:00.000000", "0000-00-00 00:00:00.000", "00:00:00.00", "0000"];
    assert_eq!(read(int_key_table(&times), Handle::Int(2), zeros), expected);
}

#[test]
fn v1_rows_give_the_same_values() {
    let plain = table(&["int", "int", "int", "varchar(5)", "int"]);
    let row = "0804 0805 0806 00 0808 02046162";
    assert_eq!(read(plain, Handle::Int(1), row), ["NULL", "-3", "NULL", "ab", "NULL"]);
    assert_eq!(read(table(&["int"]), Handle::Int(1), "00"), ["NULL"]);
    // The cell table of the reference, §5.2.
    let cells = [
        ("bigint", "0803", "-2"),
        ("bigint unsigned", "09ffffffffffffffffff01", "18446744073709551615"),
        ("float", "05c0091eb860000000", "3.14"),
        ("double", "05c0091eb851eb851f", "3.14"),
        ("decimal(10,2)", "060a028000000c32", "12.50"),
        ("varchar(3)", "0206616263", "abc"),
        ("enum(x,y)", "0902", "y"),
        ("enum(x,y)", "0900", ""),
        ("set(x,y,z)", "0906", "y,z"),
        ("date", "09808080808080ead219", "2020-02-20"),
        ("datetime", "09808080a0d184ead219", "2020-02-20 02:20:20"),
        ("datetime(6)", "09c0c487d8efefe2d819", "2023-11-05 23:59:59.123456"),
        ("time", "0880a0dff18dea03", "02:20:20"),
        ("time", "08ffd7cc97aec2dd0a", "-838:59:59"),
        ("time(3)", "088094ebdc03", "00:00:00.500"),
        ("year", "08c81f", "2020"),
        ("json", "0a0400", "null"),
        ("vector(3)", "14030000000000803f00002040000040c0", "[1,2.5,-3]"),
    ];
    for (definition, datum, text) in cells {
        assert_eq!(
            read(table(&[definition]), Handle::Int(1), &format!("0802{datum}")),
            [text],
            "{definition}"
        );
    }
    // Of two pairs with one id the last wins.
    assert_eq!(read(table(&["int"]), Handle::Int(1), "0802 0802 0802 0804"), ["2"]);
}

#[test]
fn handle_columns_come_from_the_key_when_the_value_lacks_them() {
    let unsigned = int_key_table(&["bigint unsigned", "int"]);
    assert_eq!(read(unsigned, Handle::Int(-1), "80 00 0100 0000 02 0100 07"), ["18446744073709551615", "7"]);

    let whole = common_key_table(&["varchar(20)", "int", "decimal(10,2)"], &[(0, -1), (1, -1)]);
    let handle = hex("016162630000000000fa 038000000000000007");
    let row = "80 00 0200 0000 01 03 0400 0b00 61626320 0a028000000c32";
    // The key has lost the trailing blank; the value has it.
    assert_eq!(read(whole, Handle::Common(&handle), row), ["abc ", "7", "12.50"]);

    let types = ["varchar(20) utf8mb4_general_ci", "datetime", "int", "varbinary(8)"];
    let prefix = common_key_table(&types, &[(0, 2), (1, -1), (3, -1)]);
    let handle = hex("010041004200000000fb 0419a5a82514000000 0100ff000000000000f9");
    let row = "80 00 0200 0000 01 03 0300 0400 614263 03";
    let expected = ["aBc", "2020-02-20 02:20:20", "3", "[00, ff]"];
    assert_eq!(read(prefix, Handle::Common(&handle), row), expected);

    let types = ["timestamp", "double", "bigint unsigned", "enum(x,y)", "time", "year", "date"];
    let all: Vec<(usize, i64)> = (0..7).map(|offset| (offset, -1)).collect();
    let handle = hex("0419a5a82514000000 054007ffffffffffff 04ffffffffffffffff 040000000000000002 \
                      077ffffc9d2be85200 0380000000000007e4 0419a5a80000000000");
    let expected =
        ["2020-02-20 02:20:20", "-1.5", "18446744073709551615", "y", "-01:02:03", "2020", "2020-02-20"];
    assert_eq!(read(common_key_table(&types, &all), Handle::Common(&handle), "800000000000"), expected);
}

#[test]
fn a_short_common_handle_ends_at_its_padding() {
    let table = common_key_table(&["decimal(1,0)"], &[(0, -1)]);
    let handle = hex("06 0100 81 00 00 00 00 00");
    assert_eq!(read(table, Handle::Common(&handle), "800000000000"), ["1"]);
}

#[test]
fn virtual_columns_are_told_apart_and_computed_on_request() {
    let mut table = int_key_table(&["int", "int", "int", "int"]);
    table.columns[2].generated_expr_string = "`c2` + 1".into();
    table.columns[3].generated_expr_string = "`c2` * 2".into();
    table.columns[3].generated_stored = true;
    let layout = layout(table);
    let value = hex("80 00 0200 0000 02 04 0100 0200 0a 14");
    let row = layout.row(Handle::Int(1), &value).unwrap();
    assert_eq!(row.column(2), Ok(Value::Virtual));
    assert_eq!(row.selected(2), Ok(Value::Int(11)));
    assert_eq!(row.selected(3), Ok(Value::Int(20)));
}

#[test]
fn generated_columns_that_need_each_other_in_a_circle_are_refused() {
    let mut table = table(&["int", "int"]);
    table.columns[0].generated_expr_string = "`c2` + 1".into();
    table.columns[1].generated_expr_string = "`c1` + 1".into();
    let layout = layout(table);
    let error = layout.row(Handle::Int(1), &[0x80, 0, 0, 0, 0, 0]).unwrap().selected(0).unwrap_err();
    assert!(matches!(error.reason, CellError::Generated(_)), "{error}");
}

#[test]
fn added_columns_have_their_origin_default_in_old_rows() {
    // The table of the reference, §6.4: type, origin default, bytes of a BIT default, value of an old row.
    type Case = (&'static str, Option<&'static str>, Option<&'static [u8]>, &'static str);
    let cases: [Case; 18] = [
        ("int not null", Some("5"), None, "5"),
        ("varchar(10)", Some("zz"), None, "zz"),
        ("timestamp not null", Some("2020-02-20 02:20:20"), None, "2020-02-20 02:20:20"),
        ("bit(10)", Some("\u{5}"), Some(&[5]), "\0\u{5}"),
        ("enum(x,y) not null", Some("x"), None, "x"),
        ("datetime not null", Some("0000-00-00 00:00:00"), None, "0000-00-00 00:00:00"),
        ("int", None, None, "NULL"),
        ("binary(3) not null", Some("\0\0\0"), None, "\0\0\0"),
        ("decimal(8,3)", Some("1.250"), None, "1.250"),
        ("set(p,q)", Some("p,q"), None, "p,q"),
        ("time", Some("-01:02:03"), None, "-01:02:03"),
        ("year", Some("2020"), None, "2020"),
        ("float", Some("1.5"), None, "1.5"),
        ("binary(3)", Some("ab"), None, "ab\0"),
        // Written while the column was being dropped: the type's zero value.
        ("enum(x,y) not null", None, None, "x"),
        ("decimal(5,2) not null", None, None, "0.00"),
        ("json not null", None, None, "null"),
        ("date not null", None, None, "0000-00-00"),
    ];
    for (definition, default, bits, expected) in cases {
        let mut table = table(&[definition]);
        table.columns[0].origin_default = default.map(|text| DefaultValue::Text(text.into()));
        table.columns[0].origin_default_bit = bits.map(<[u8]>::to_vec);
        assert_eq!(read(table.clone(), Handle::Int(1), "800000000000"), [expected], "{definition}");
        assert_eq!(read(table, Handle::Int(1), "00"), [expected], "{definition}");
    }
}

#[test]
fn a_current_date_default_is_the_day_of_the_schema_change() {
    let mut table = table(&["date"]);
    table.columns[0].origin_default = Some(DefaultValue::Text("CURRENT_DATE".into()));
    // 2026-02-18 is 20,502 days after 1970-01-01.
    table.update_timestamp = Ts::from_parts(20_502 * 86_400_000 + 3_600_000, 0);
    assert_eq!(read(table, Handle::Int(1), "800000000000"), ["2026-02-18"]);
}

#[test]
fn a_narrowed_decimal_is_rounded_to_the_columns_scale() {
    let row = "80 00 0100 0000 01 0800 0a03 800030390005";
    // 12345.005 stored with scale 3 in a column of scale 2.
    assert_eq!(read(table(&["decimal(10,2)"]), Handle::Int(1), row), ["12345.01"]);
}

#[test]
fn rows_from_before_a_rewrite_are_converted() {
    // The example of the reference, §7.1: column b was varchar with id 3 and is int with id 4.
    let old = int_key_table(&["int", "int", "varchar(10)"]);
    let mut new = int_key_table(&["int", "int", "int"]);
    new.columns[2].id = ColumnId(4);
    new.columns[2].name = "c3".into();
    let rewrites = rewrites_between(&old, &new);
    assert_eq!(rewrites, [Rewrite { from: ColumnId(3), to: ColumnId(4) }]);
    let at = Ts::new(100);
    let layout = TableLayout::evolve(&layout(old), Arc::new(new), &rewrites, at);
    // What the backfill wrote, which a change feed does not show.
    let backfilled = "80 00 0400 0000 01 02 03 04 0100 0200 0400 0500 01 0a 3737 4d";
    assert_eq!(texts(&layout, Handle::Int(1), backfilled), ["1", "10", "77"]);
    let before = "80 00 0200 0000 02 03 0100 0300 0a 3737";
    assert_eq!(texts(&layout, Handle::Int(1), before), ["1", "10", "77"]);
    let after = "80 00 0200 0000 02 04 0100 0200 0b 4d";
    assert_eq!(texts(&layout, Handle::Int(1), after), ["1", "11", "77"]);
    // A row written after the rewrite without the column has NULL in it, whatever stale ids it mentions.
    let value = hex(before);
    let young = layout.row(Handle::Int(1), &value).unwrap().written_at(Ts::new(101));
    assert_eq!(young.column(2), Ok(Value::Null));
}

#[test]
fn a_column_that_is_being_rewritten_names_its_source() {
    let mut old = table(&["int", "int"]);
    old.columns[1].name = "_Col$_c1_0".into();
    old.columns[1].state = SchemaState::WriteReorganization;
    old.columns[1].change_state_info = Some(crate::meta::ChangeState { relative_col_offset: 0 });
    let mut new = table(&["int", "int"]);
    new.columns.swap(0, 1);
    new.columns[1].state = SchemaState::DeleteOnly;
    assert_eq!(rewrites_between(&old, &new), [Rewrite { from: ColumnId(1), to: ColumnId(2) }]);
    // A column that is added has no source, even if another one disappears.
    let mut added = table(&["int"]);
    added.columns[0].id = ColumnId(9);
    added.columns[0].name = "other".into();
    assert_eq!(rewrites_between(&table(&["int"]), &added), []);
}

#[test]
fn a_rewritten_column_is_found_under_its_new_name_unless_columns_were_dropped_and_added() {
    let old = table(&["int", "varchar(9)"]);
    let mut new = table(&["int", "int"]);
    new.columns[1].id = ColumnId(3);
    new.columns[1].name = "renamed".into();
    let event =
        |action: ActionType, query: &str| DdlEvent { action, query: query.into(), ..DdlEvent::default() };
    let change = event(ActionType::ModifyColumn, "alter table t change column c2 renamed int");
    let rewrite = [Rewrite { from: ColumnId(2), to: ColumnId(3) }];
    assert_eq!(rewrites_of(&change, &old, &new), rewrite);
    let several = event(ActionType::MultiSchemaChange, "alter table t change c2 renamed int, modify c1 int");
    assert_eq!(rewrites_of(&several, &old, &new), rewrite);
    let replaced = event(ActionType::MultiSchemaChange, "alter table t DROP COLUMN c2, ADD renamed int");
    assert_eq!(rewrites_of(&replaced, &old, &new), []);
}

#[test]
fn checksums_of_all_versions_are_verified() {
    let two = || layout(table(&["int", "int", "int", "varchar(5)"]));
    let cases = [
        ("800202000000 0204 0100 0300 05 6162 02 4aaa4a5f", 2),
        ("800202000000 0204 0100 0300 05 6162 00 33ec8ac7", 0),
    ];
    for (row, version) in cases {
        let (layout, value) = (two(), hex(row));
        let row = layout.row(Handle::Int(1), &value).unwrap();
        assert_eq!(row.checksum().unwrap().unwrap().version, version);
        assert_eq!(row.verify_checksum(&[]), Ok(()));
        let mut damaged = value.clone();
        damaged[12] ^= 1;
        let error = layout.row(Handle::Int(1), &damaged).unwrap().verify_checksum(&[]).unwrap_err();
        assert!(matches!(error, ChecksumError::Mismatch { .. }), "{error}");
    }
    let ck = layout(int_key_table(&["int", "varchar(4)", "int"]));
    let key = hex("7480000000000000725f728000000000000001");
    let value = hex("8002010000000201007101095bf04d");
    assert_eq!(ck.row(Handle::Int(1), &value).unwrap().verify_checksum(&key), Ok(()));
    let ckc = layout(common_key_table(&["varchar(4)", "int"], &[(0, -1)]));
    let handle = hex("015100000000000000f8");
    let value = hex("80 02 0200 0000 01 02 0200 0300 5120 01 02 34ae857a");
    assert_eq!(ckc.row(Handle::Common(&handle), &value).unwrap().verify_checksum(&[]), Ok(()));
}

#[test]
fn errors_name_table_column_and_offset_but_no_value() {
    let layout = layout(table(&["int", "set(a,b)"]));
    let row = hex("80 00 0200 0000 01 02 0300 0400 010203 ff");
    let view = layout.row(Handle::Int(1), &row).unwrap();
    let error = view.column(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot decode row of table t (id 114), column c1, at byte 12: impossible length 3 for integer"
    );
    assert_eq!(view.column(1).unwrap_err().reason, CellError::SetBits { members: 2 });
    assert_eq!(view.column(2).unwrap_err().reason, CellError::NoSuchColumn);
    for cut in ["", "80", "80 00 0100 0000", "80 00 0100 0000 01 01", "80 01 0100 0000 01000000 0100"] {
        assert_eq!(layout.row(Handle::Int(1), &hex(cut)).unwrap_err().reason, CellError::Header, "{cut}");
    }
    // An end offset beyond the data, and one before the cell's start.
    for damaged in ["80 00 0100 0000 01 0900 01", "80 00 0200 0000 01 02 0200 0100 01 02"] {
        let row = hex(damaged);
        let view = layout.row(Handle::Int(1), &row).unwrap();
        assert!([0, 1].iter().any(|index| view.column(*index).is_err()), "{damaged}");
    }
}

proptest! {
    #[test]
    fn any_bytes_read_or_fail_without_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        v2: bool,
        handle in proptest::collection::vec(any::<u8>(), 9..30),
    ) {
        let types = ["varchar(9)", "int", "decimal(9,2)", "json", "set(a,b)", "enum(a)", "time(3)", "vector",
                     "datetime", "bit(9)", "float", "year"];
        let layout = layout(common_key_table(&types, &[(0, 3), (1, -1)]));
        let header = [0x80, bytes.first().map_or(0, |byte| byte & 3), 3, 0, 1, 0];
        let bytes = if v2 { [&header, bytes.as_slice()].concat() } else { bytes };
        if let Ok(row) = layout.row(Handle::Common(&handle), &bytes) {
            for index in 0..types.len() {
                if let Ok(value) = row.column(index) {
                    let mut text = Vec::new();
                    let _ = crate::text::write_text(&value, &mut text);
                }
            }
            let _ = row.verify_checksum(&[]);
        }
    }
}
