use super::*;
use crate::convert::plain_text;
use crate::decimal::Decimal;
use crate::json::Json;
use crate::time::Time;

/// A row with one column of each kind that expressions treat differently.
struct Row;

const NAMES: [&str; 9] = ["i", "u", "d", "f", "s", "j", "dt", "day", "n"];

impl Columns for Row {
    fn value(&self, index: usize) -> Result<Value<'static>> {
        let time = Time::parse("2024-02-29 23:59:58.5", 1).unwrap();
        Ok(match NAMES[index] {
            "i" => Value::Int(-7),
            "u" => Value::UInt(u64::MAX),
            "d" => Value::Decimal(Decimal::parse("12.50").unwrap()),
            "f" => Value::Double(0.1),
            "s" => Value::Text("Héllo, wörld".into()),
            "j" => Value::Json(Json::parse(r#"{"n":"x","a":[1,2.5,{"b":null}],"b c":true}"#).unwrap()),
            "dt" => Value::DateTime(time),
            "day" => Value::Date(Time::parse("2024-01-31", 0).unwrap()),
            _ => Value::Null,
        })
    }

    fn ignores_case(&self, _: usize) -> bool {
        false
    }
}

fn compute(text: &str) -> Result<Value<'static>> {
    let column = |name: &str| NAMES.iter().position(|known| *known == name);
    evaluate(&parse(text, &column)?, &Row)
}

fn check(cases: &[(&str, &str)]) {
    for (text, shown) in cases {
        let value = compute(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = if value.is_null() { "NULL".to_owned() } else { plain_text(&value) };
        assert_eq!(found, *shown, "{text}");
    }
}

// The expected values are MySQL's documented rules applied by hand.

#[test]
fn arithmetic_keeps_integers_exact_and_follows_precedence() {
    check(&[
        ("`i` * 2 + 3", "-11"),
        ("`i` * (2 + 3)", "-35"),
        ("- `i` - -1", "8"),
        ("`i` div 2", "-3"),
        ("`i` % 4", "-3"),
        ("`i` / 2", "-3.500000000"),
        ("`i` / 0", "NULL"),
        ("`n` + 1", "NULL"),
        ("`d` * 2", "25.00"),
        ("`d` + 1e1", "22.5"),
        ("`f` + 0.2", "0.30000000000000004"),
        ("'3x' + 1", "4"),
        ("1 << 3 | 1", "9"),
        ("~0", "18446744073709551615"),
        ("6 & 3 ^ 1", "2"),
    ]);
    assert_eq!(compute("`u` + 1"), Err(GeneratedError::OutOfRange));
}

#[test]
fn comparisons_and_logic_know_three_values() {
    check(&[
        ("`i` < 0 and `d` >= 12.5", "1"),
        ("`n` = 1 or 1", "1"),
        ("`n` = 1 or 0", "NULL"),
        ("not (`i` = -7)", "0"),
        ("`n` is null", "1"),
        ("`i` is not null", "1"),
        ("`n` <=> null", "1"),
        ("`i` in (1,-7,3)", "1"),
        ("`i` not in (1,null)", "NULL"),
        ("`d` between 12 and 13", "1"),
        ("`d` not between 12 and 13", "0"),
        ("`s` like _utf8mb4'H_llo%'", "1"),
        ("`s` not like '%x%'", "1"),
        ("'a' = 'a  '", "1"),
        ("'10' > 9", "1"),
        ("`dt` > '2024-02-29'", "1"),
        ("1 xor 1", "0"),
    ]);
}

#[test]
fn conditional_expressions_choose_a_branch() {
    check(&[
        ("if(`i` < 0, 'neg', 'pos')", "neg"),
        ("ifnull(`n`, 5)", "5"),
        ("coalesce(`n`, null, `i`)", "-7"),
        ("nullif(`i`, -7)", "NULL"),
        ("case when `i` > 0 then 1 when `i` < 0 then 2 else 3 end", "2"),
        ("case `i` when 1 then 'one' when -7 then 'minus seven' end", "minus seven"),
        ("case `i` when 1 then 'one' end", "NULL"),
    ]);
}

#[test]
fn casts_convert_as_columns_do() {
    check(&[
        ("cast(`d` as signed)", "13"),
        ("cast(`i` as unsigned)", "18446744073709551609"),
        ("cast('12.345' as decimal(10,2))", "12.35"),
        ("cast(`dt` as date)", "2024-02-29"),
        ("cast(`s` as char(5))", "Héllo"),
        ("cast(json_extract(`j`, '$.a[1]') as double)", "2.5"),
        ("convert(`i`, char)", "-7"),
        ("cast('{\"k\": 1}' as json)", "{\"k\": 1}"),
        ("binary 'ab'", "ab"),
    ]);
}

#[test]
fn string_functions_count_characters() {
    check(&[
        ("concat(`s`, _utf8mb4'!', 1.50)", "Héllo, wörld!1.50"),
        ("concat('a', null)", "NULL"),
        ("concat_ws('-', 'a', null, 'b')", "a-b"),
        ("upper(`s`)", "HÉLLO, WÖRLD"),
        ("length(`s`)", "14"),
        ("char_length(`s`)", "12"),
        ("substring(`s`, 2, 3)", "éll"),
        ("substr(`s`, -5)", "wörld"),
        ("left(`s`, 2)", "Hé"),
        ("right(`s`, 2)", "ld"),
        ("substring_index('a.b.c', '.', 2)", "a.b"),
        ("substring_index('a.b.c', '.', -2)", "b.c"),
        ("trim('  a ')", "a"),
        ("trim(leading 'x' from 'xxax')", "ax"),
        ("replace('abab', 'a', 'c')", "cbcb"),
        ("reverse('abc')", "cba"),
        ("lpad('5', 3, '0')", "005"),
        ("rpad('abc', 2, 'x')", "ab"),
        ("locate('l', `s`)", "3"),
        ("instr(`s`, 'w')", "8"),
        ("hex('ab')", "6162"),
        ("hex(255)", "FF"),
        ("x'6162'", "ab"),
        ("'it''s \\n'", "it's \n"),
    ]);
}

#[test]
fn number_functions_round_by_type() {
    check(&[
        ("abs(`i`)", "7"),
        ("floor(-1.5)", "-2"),
        ("ceil(1.2)", "2"),
        ("round(2.5)", "3"),
        ("round(12.345, 2)", "12.35"),
        ("truncate(12.349, 2)", "12.34"),
        ("mod(7, 3)", "1"),
        ("greatest(1, `d`, 3)", "12.50"),
        ("least(`i`, 3)", "-7"),
        ("pow(2, 10)", "1024"),
        ("sign(`i`)", "-1"),
        ("crc32('MySQL')", "3259397556"),
    ]);
}

#[test]
fn date_functions_read_the_calendar() {
    check(&[
        ("year(`dt`)", "2024"),
        ("month(`dt`) * 100 + day(`dt`)", "229"),
        ("hour(`dt`)", "23"),
        ("date(`dt`)", "2024-02-29"),
        ("dayofweek('2024-02-29')", "5"),
        ("weekday('2024-02-29')", "3"),
        ("dayofyear('2024-03-01')", "61"),
        ("last_day('2023-02-10')", "2023-02-28"),
        ("datediff('2024-03-01', `day`)", "30"),
        ("to_days('1970-01-01')", "719528"),
        ("date_add(`day`, interval 1 month)", "2024-02-29"),
        ("`day` + interval 1 day", "2024-02-01"),
        ("date_sub(`day`, interval 1 hour)", "2024-01-30 23:00:00"),
        ("date_add('2024-01-01 00:00:00', interval '1:30' minute_second)", "2024-01-01 00:01:30"),
        ("date_format(`dt`, '%Y/%m/%d %H:%i:%s')", "2024/02/29 23:59:58"),
        ("timestampdiff(month, '2024-01-31', '2024-02-29')", "0"),
        ("extract(year_month from `dt`)", "202402"),
        ("unix_timestamp('1970-01-02 00:00:00')", "86400"),
    ]);
}

#[test]
fn json_functions_follow_paths() {
    check(&[
        ("json_unquote(json_extract(`j`, _utf8mb4'$.n'))", "x"),
        ("`j` ->> '$.a[1]'", "2.5"),
        ("json_extract(`j`, '$.n')", "\"x\""),
        ("json_extract(`j`, '$.\"b c\"')", "true"),
        ("json_extract(`j`, '$.a[2].b')", "null"),
        ("json_extract(`j`, '$.a[last]')", "{\"b\": null}"),
        ("json_extract(`j`, '$.missing')", "NULL"),
        ("json_extract(`j`, '$.n', '$.a[0]')", "[\"x\", 1]"),
        ("json_length(`j`)", "3"),
        ("json_length(`j`, '$.a')", "3"),
        ("json_type(json_extract(`j`, '$.a'))", "ARRAY"),
        ("json_valid('{')", "0"),
        ("json_contains(`j`, '1', '$.a')", "1"),
        ("json_keys(`j`)", "[\"a\", \"b c\", \"n\"]"),
        ("json_object('k', `i`, 'v', null)", "{\"k\": -7, \"v\": null}"),
    ]);
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let unsupported = |what: &str| Err(GeneratedError::Unsupported(what.to_owned()));
    assert_eq!(compute("soundex(`s`)"), unsupported("function soundex"));
    assert_eq!(compute("json_extract(`j`, '$.*')"), unsupported("json path $.*"));
    assert_eq!(compute("`nope` + 1"), Err(GeneratedError::UnknownColumn("nope".to_owned())));
    for bad in ["", "1 +", "(1", "1 2", "case end", "'open", "`open", "a(1,", "1 in 2", "#"] {
        assert!(
            matches!(compute(bad), Err(GeneratedError::Syntax(_) | GeneratedError::UnknownColumn(_))),
            "{bad}"
        );
    }
}

#[test]
fn hostile_nesting_is_refused_before_it_hurts() {
    let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let long = format!("1{}", "+1".repeat(100_000));
    let negated = format!("{}1", "not ".repeat(100_000));
    let paths = format!("`j`{}", "->'$.a'".repeat(100_000));
    for text in [deep, long, negated] {
        assert!(matches!(compute(&text), Err(GeneratedError::Syntax(_))));
    }
    assert!(compute(&paths).is_err());
}

proptest::proptest! {
    #[test]
    fn any_text_computes_or_fails_without_panic(text: String) {
        let _ = compute(&text);
    }

    #[test]
    fn any_words_compute_or_fail_without_panic(
        words in proptest::collection::vec(proptest::sample::select(WORDS.to_vec()), 0..12),
    ) {
        let _ = compute(&words.join(" "));
    }
}

const WORDS: [&str; 40] = [
    "`i`",
    "`u`",
    "`d`",
    "`f`",
    "`s`",
    "`j`",
    "`dt`",
    "`day`",
    "`n`",
    "1",
    "-1",
    "0",
    "1.5",
    "'a'",
    "x'ff'",
    "(",
    ")",
    ",",
    "+",
    "-",
    "*",
    "/",
    "%",
    "=",
    "<",
    "and",
    "or",
    "not",
    "in (",
    "between",
    "like",
    "concat(",
    "substr(",
    "round(",
    "date_add(",
    "interval",
    "day",
    "json_extract(",
    "lpad(",
    "repeat(",
];
