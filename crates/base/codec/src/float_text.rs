//! Floats as TiDB prints them: shortest digits that read back the same, and its own rule for when to use an
//! exponent (`reference/tidb-keys-and-rows.md` §5.12 and recorded results).

use std::io::Write as _;

/// From here on an exponent is used.
const EXPONENT_FROM: f64 = 1e15;
/// Below this an exponent is used.
const EXPONENT_BELOW: f64 = 1e-15;
/// [`ryu`] prints without an exponent at least from here up to [`EXPONENT_FROM`].
const RYU_PLAIN_FROM: f64 = 1e-5;
/// The largest `f32` has this many digits after the point when an exponent is used.
const FLOAT_EXPONENT_DIGITS: usize = 5;

/// Appends a DOUBLE as the text protocol gives it: `1`, `0.5`, `9.007199254740992e15`.
pub fn write_double(value: f64, out: &mut Vec<u8>) {
    write_double_form(value, out, false);
}

/// Appends a double inside JSON: as [`write_double`], but whole numbers end in `.0`.
pub fn write_json_double(value: f64, out: &mut Vec<u8>) {
    write_double_form(value, out, true);
}

fn write_double_form(value: f64, out: &mut Vec<u8>, point: bool) {
    let size = value.abs();
    if size != 0.0 && !(EXPONENT_BELOW..EXPONENT_FROM).contains(&size) {
        write!(out, "{value:e}").expect("writing to memory cannot fail");
        return;
    }
    if size < RYU_PLAIN_FROM {
        write!(out, "{value}").expect("writing to memory cannot fail");
        if point && size == 0.0 {
            out.extend_from_slice(b".0");
        }
        return;
    }
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(value);
    let text = if point { text } else { text.strip_suffix(".0").unwrap_or(text) };
    out.extend_from_slice(text.as_bytes());
}

/// Appends a FLOAT as the text protocol gives it. With an exponent it has at most five digits after the
/// point, without one as many as reading it back needs.
pub fn write_float(value: f32, out: &mut Vec<u8>) {
    let size = value.abs();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the bounds are meant in float32, as TiDB compares them"
    )]
    let plain = size == 0.0 || (EXPONENT_BELOW as f32..EXPONENT_FROM as f32).contains(&size);
    if plain {
        write!(out, "{value}").expect("writing to memory cannot fail");
        return;
    }
    let text = format!("{value:.FLOAT_EXPONENT_DIGITS$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    write!(out, "{mantissa}e{exponent}").expect("writing to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_doubles_print_as_the_reference_lists_them() {
        let cases = [
            (1.5, "1.5"),
            (1.0, "1.0"),
            (1e20, "1e20"),
            (1e-20, "1e-20"),
            (1e14, "100000000000000.0"),
            (1e15, "1e15"),
            (1e-15, "0.000000000000001"),
            (1e-16, "1e-16"),
            (1e5, "100000.0"),
            (-0.0, "-0.0"),
            (12_345_678_901_234_567_890_123.0, "1.2345678901234568e22"),
        ];
        for (value, shown) in cases {
            assert_eq!(text(|out| write_json_double(value, out)), shown);
        }
    }

    #[test]
    fn columns_print_as_recorded_from_tidb() {
        let doubles = [
            (3.3000000000000003, "3.3000000000000003"),
            (-1.7976931348623157e308, "-1.7976931348623157e308"),
            (9_007_199_254_740_992.0, "9.007199254740992e15"),
            (0.0, "0"),
            (1_234_567.891, "1234567.891"),
        ];
        for (value, shown) in doubles {
            assert_eq!(text(|out| write_double(value, out)), shown);
        }
        let floats = [
            (2.71_f32, "2.71"),
            (-3.4e38, "-3.4e38"),
            (1e-38, "1e-38"),
            (16_777_216.0, "16777216"),
            (-99_999.99, "-99999.99"),
        ];
        for (value, shown) in floats {
            assert_eq!(text(|out| write_float(value, out)), shown);
        }
    }

    proptest! {
        #[test]
        fn text_reads_back_the_same_double(
            value in proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL,
        ) {
            for write in [write_double, write_json_double] {
                let shown = text(|out| write(value, out));
                prop_assert_eq!(shown.parse::<f64>().unwrap().to_bits(), value.to_bits());
            }
        }

        #[test]
        fn any_bits_print_without_panic(bits: u64, half: u32) {
            let _ = text(|out| write_double(f64::from_bits(bits), out));
            let _ = text(|out| write_float(f32::from_bits(half), out));
        }
    }
}
