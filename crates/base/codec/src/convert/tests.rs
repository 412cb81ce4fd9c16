//! MODIFY COLUMN's conversions, one line each: type before, text, type after, text after. The outcomes are
//! MySQL's documented rules in a lenient SQL mode; the recorded random schemas check many more.

use std::borrow::Cow;

use super::*;
use crate::testing::{field, shown};

/// 2024-02-29 in days since 1970-01-01: 54 years, 13 leap days (1972 to 2020), 31 + 28 days.
const TODAY: i64 = 54 * 365 + 13 + 31 + 28;

fn value(definition: &str, text: &str) -> Value<'static> {
    let context = Context { clip_negative: true, today: TODAY };
    let source = match definition {
        "bit(8)" => Value::UInt(text.parse().unwrap()),
        _ => Value::Text(Cow::Owned(text.to_owned())),
    };
    convert(&source, &field(definition), context).unwrap()
}

fn check(cases: &[(&str, &str, &str, &str)]) {
    for (from, text, to, expected) in cases {
        let context = Context { clip_negative: true, today: TODAY };
        let converted = convert(&value(from, text), &field(to), context).unwrap();
        assert_eq!(shown(&converted), *expected, "{from} {text:?} to {to}");
    }
}

#[test]
fn numbers_are_rounded_and_clipped() {
    check(&[
        ("int", "300", "tinyint", "127"),
        ("int", "-1", "int unsigned", "0"),
        ("bigint unsigned", "18446744073709551615", "bigint", "9223372036854775807"),
        ("double", "2.5", "int", "2"),
        ("double", "3.5", "int", "4"),
        ("decimal(5,2)", "2.50", "int", "3"),
        ("decimal(5,2)", "-2.50", "int", "-3"),
        ("varchar(20)", "12.6abc", "int", "13"),
        ("varchar(20)", "abc", "int", "0"),
        ("varchar(20)", "1e3", "smallint", "1000"),
        ("int", "12345", "decimal(5,2)", "999.99"),
        ("decimal(10,4)", "1.2345", "decimal(6,3)", "1.235"),
        ("float", "0.1", "double", "0.10000000149011612"),
        ("double", "1e300", "float", "3.40282e38"),
        ("double", "1.005", "float(7,2)", "1"),
        ("varchar(20)", " 1.5x", "double", "1.5"),
        ("enum(a,b)", "b", "int", "2"),
        ("set(a,b)", "a,b", "decimal(4,1)", "3.0"),
        ("json", "true", "int", "1"),
        ("json", "\"12.7\"", "int", "13"),
        ("json", "[1]", "double", "0"),
    ]);
}

#[test]
fn texts_are_written_as_values_print_and_cut() {
    check(&[
        ("int", "-42", "varchar(10)", "-42"),
        ("double", "1e20", "varchar(40)", "100000000000000000000"),
        ("float", "0.1", "varchar(10)", "0.1"),
        ("decimal(5,2)", "1.5", "varchar(10)", "1.50"),
        ("datetime(3)", "2024-01-02 03:04:05.678", "varchar(30)", "2024-01-02 03:04:05.678"),
        ("year", "0000", "varchar(4)", "0"),
        ("varchar(20)", "héllo", "varchar(3)", "hél"),
        ("varchar(20)", "a  ", "char(20)", "a"),
        ("varchar(20)", "ab", "binary(4)", "ab\0\0"),
        ("varchar(20)", "é€", "varchar(9) ascii_bin", "??"),
        ("enum(a,b)", "b", "varchar(9)", "b"),
        ("set(a,b)", "a,b", "varchar(9)", "a,b"),
        ("bit(8)", "65", "varchar(9)", "65"),
        ("json", "{\"a\":1}", "varchar(20)", "{\"a\": 1}"),
        ("json", "\"s\"", "varchar(20)", "\"s\""),
    ]);
    let broken = Value::Bytes(Cow::Borrowed(b"ab\xffcd"));
    let context = Context { clip_negative: true, today: 0 };
    assert_eq!(shown(&convert(&broken, &field("varchar(9)"), context).unwrap()), "ab");
}

#[test]
fn times_are_read_loosely_and_impossible_ones_become_zero() {
    check(&[
        ("varchar(30)", "2024-02-29 12:34:56.789", "datetime", "2024-02-29 12:34:57"),
        ("varchar(30)", "24/2/29", "date", "2024-02-29"),
        ("varchar(30)", "20240229123456", "datetime", "2024-02-29 12:34:56"),
        ("varchar(30)", "240229", "date", "2024-02-29"),
        ("varchar(30)", "2023-02-29", "date", "0000-00-00"),
        ("varchar(30)", "2024-00-00", "date", "2024-00-00"),
        ("varchar(30)", "hello", "datetime", "0000-00-00 00:00:00"),
        ("varchar(30)", "2024-01-01T10:00", "datetime", "2024-01-01 10:00:00"),
        ("int", "20240229", "date", "2024-02-29"),
        ("bigint", "991231235959", "datetime", "1999-12-31 23:59:59"),
        ("int", "2004", "date", "0000-00-00"),
        ("datetime(6)", "2024-02-29 23:59:59.999999", "datetime", "2024-03-01 00:00:00"),
        ("datetime", "2024-02-29 23:59:59", "date", "2024-02-29"),
        ("datetime", "1969-12-31 23:59:59", "timestamp", "0000-00-00 00:00:00"),
        ("datetime", "2038-01-19 03:14:08", "timestamp", "0000-00-00 00:00:00"),
        ("time(1)", "12:00:00.5", "datetime(1)", "2024-02-29 12:00:00.5"),
        ("datetime(1)", "2024-02-29 23:59:59.5", "bigint", "20240301000000"),
        ("datetime(1)", "2024-02-29 23:59:59.5", "bigint unsigned", "20240229235960"),
        ("date", "2024-02-29", "decimal(10,2)", "20240229.00"),
        ("json", "\"2024-02-29\"", "date", "2024-02-29"),
    ]);
}

#[test]
fn time_spans_are_read_loosely_and_clipped() {
    check(&[
        ("varchar(30)", "1:2:3.45", "time(1)", "01:02:03.5"),
        ("varchar(30)", "2 3:04", "time", "51:04:00"),
        ("varchar(30)", "12345", "time", "01:23:45"),
        ("varchar(30)", "-900:00:00", "time", "-838:59:59"),
        ("varchar(30)", "1:99", "time", "00:00:00"),
        ("varchar(30)", "x", "time", "00:00:00"),
        ("varchar(30)", "2024-02-29 12:34:56", "time", "12:34:56"),
        ("int", "123456", "time", "12:34:56"),
        ("int", "9999999", "time", "838:59:59"),
        ("int", "-9999999", "time", "NULL"),
        ("int", "170", "time", "00:00:00"),
        ("datetime", "2024-02-29 12:34:56", "time", "12:34:56"),
        ("time(1)", "12:34:59.5", "int", "123500"),
        ("time(3)", "-00:00:01.500", "time", "-00:00:01"),
        ("time", "00:20:04", "year", "2004"),
        ("time", "12:34:56", "year", "2155"),
        ("time", "00:00:05", "year", "2005"),
    ]);
}

#[test]
fn years_enums_sets_and_bits_take_what_fits() {
    check(&[
        ("int", "70", "year", "1970"),
        ("int", "69", "year", "2069"),
        ("int", "3000", "year", "2155"),
        ("varchar(9)", "0", "year", "2000"),
        ("varchar(9)", "0000", "year", "0000"),
        ("varchar(9)", "abc", "year", "0000"),
        ("date", "1000-01-01", "year", "1901"),
        ("varchar(9)", "b", "enum(a,b)", "b"),
        ("varchar(9)", "B", "enum(a,b)", ""),
        ("varchar(9)", "B", "enum(a,b) utf8mb4_general_ci", "b"),
        ("varchar(9)", "2", "enum(a,b)", "b"),
        ("int", "2", "enum(a,b)", "b"),
        ("int", "9", "enum(a,b)", ""),
        ("varchar(9)", "b,a", "set(a,b,c)", "a,b"),
        ("varchar(9)", "a,x", "set(a,b,c)", ""),
        ("int", "5", "set(a,b,c)", "a,c"),
        ("enum(x,a)", "a", "set(a,b,c)", "a"),
        ("int", "66", "bit(7)", "B"),
        ("int", "300", "bit(6)", "?"),
        ("int", "-1", "bit(6)", "?"),
        ("int", "7", "json", "7"),
        ("decimal(4,2)", "1.50", "json", "1.5"),
        ("date", "2024-02-29", "json", "\"2024-02-29\""),
        ("time(1)", "01:02:03.5", "json", "\"01:02:03.500000\""),
        ("vector(2)", "[1,2]", "varchar(9)", "[1,2]"),
    ]);
    let context = Context { clip_negative: true, today: 0 };
    let text = Value::Text(Cow::Borrowed("{"));
    assert_eq!(convert(&text, &field("json"), context), Err(Unconvertible));
    assert_eq!(convert(&Value::Null, &field("int"), context), Ok(Value::Null));
}

/// One type of each kind.
const TYPES: &str = "tinyint|bigint unsigned|double|float(7,2)|decimal(65,30)|char(3)|binary(3)|varchar(400)|\
                     date|datetime(6)|timestamp|time(6)|year|enum(a,b)|set(a,b)|bit(64)|json|vector";

proptest::proptest! {
    #[test]
    fn any_text_converts_to_any_type_without_panic(text: String) {
        let context = Context { clip_negative: true, today: TODAY };
        for to in TYPES.split('|') {
            let _ = convert(&Value::Text(Cow::Borrowed(&text)), &field(to), context);
        }
    }

    #[test]
    fn any_number_converts_to_any_type_without_panic(int: i64, double: f64) {
        let context = Context { clip_negative: true, today: TODAY };
        for to in TYPES.split('|') {
            for value in [Value::Int(int), Value::UInt(int.cast_unsigned()), Value::Double(double)] {
                let _ = convert(&value, &field(to), context);
            }
        }
    }
}
