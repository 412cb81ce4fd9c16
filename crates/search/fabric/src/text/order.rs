//! Keys that sort as the values do, so that every numeric type shares one column type and no comparison goes
//! through floating point.

/// A signed integer as an unsigned one of the same order: the sign bit flipped.
pub(crate) const fn int_key(value: i64) -> u64 {
    value.cast_unsigned() ^ (1 << 63)
}

/// The integer of a key.
pub(crate) const fn int_of_key(key: u64) -> i64 {
    (key ^ (1 << 63)).cast_signed()
}

/// A float as an unsigned integer of the same order (IEEE 754 total order, with −0 taken for +0; NaN last).
pub(crate) fn float_key(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
}

/// The float of a key.
pub(crate) fn float_of_key(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

/// Most digits before the point that a decimal may have. MySQL's limit is 65 digits in all; two key digits
/// count them.
const INTEGER_DIGITS_MAX: usize = 99;

/// Exact decimal text as text that sorts as the number does; `None` if it is not a decimal.
///
/// A positive number is `p`, two digits that count the digits before the point, then all digits. A negative
/// one is `n` and the nines' complement of the same, closed by `~` so that of two numbers that agree as far
/// as the shorter goes, the longer one is the smaller. Zero is `o`. Leading and trailing zeros vanish: 1.50
/// and 1.5 are equal.
pub(crate) fn decimal_key(text: &str) -> Option<String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = integer.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit());
    if !all_digits || (integer.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (integer, fraction) = (integer.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if integer.len() > INTEGER_DIGITS_MAX {
        return None;
    }
    if integer.is_empty() && fraction.is_empty() {
        return Some("o".to_owned());
    }
    let magnitude = format!("{:02}{integer}{fraction}", integer.len());
    if !negative {
        return Some(format!("p{magnitude}"));
    }
    Some(format!("n{}~", complement(&magnitude)))
}

/// The shortest decimal text of a key; `None` if it is not one.
pub(crate) fn decimal_of_key(key: &str) -> Option<String> {
    if key == "o" {
        return Some("0".to_owned());
    }
    let (sign, magnitude) = match key.strip_prefix('p') {
        Some(magnitude) => ("", magnitude.to_owned()),
        None => ("-", complement(key.strip_prefix('n')?.strip_suffix('~')?)),
    };
    let (count, digits) = magnitude.split_at_checked(2)?;
    let (integer, fraction) = digits.split_at_checked(count.parse().ok()?)?;
    let integer = if integer.is_empty() { "0" } else { integer };
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{integer}{point}{fraction}"))
}

/// The nines' complement of each digit.
fn complement(digits: &str) -> String {
    digits.bytes().map(|digit| char::from(b'0' + (b'9'.saturating_sub(digit)))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimals_sort_as_numbers_and_equal_ones_share_a_key() {
        let ascending = [
            "-100",
            "-99.99",
            "-10",
            "-1.5",
            "-1.45",
            "-1",
            "-0.02",
            "-0.019",
            "0",
            "0.001",
            "0.1",
            "0.99",
            "1",
            "1.05",
            "1.5",
            "2",
            "9",
            "10",
            "15.0",
            "15.1",
            "99.9",
            "100",
            "18446744073709551616",
        ];
        let keys: Vec<_> = ascending.iter().map(|text| decimal_key(text).expect("a decimal")).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        assert_eq!(decimal_key("015.00"), decimal_key("15"));
        assert_eq!(decimal_key("-0.0"), decimal_key("0"));
        let back: Vec<_> = keys.iter().filter_map(|key| decimal_of_key(key)).collect();
        let shortest: Vec<_> =
            ascending.iter().map(|text| if *text == "15.0" { "15" } else { text }).collect();
        assert_eq!(back, shortest);
    }

    #[test]
    fn what_is_no_decimal_has_no_key() {
        for text in ["", ".", "-", "1e5", "abc", "1.2.3", "NaN", "１"] {
            assert_eq!(decimal_key(text), None, "{text}");
        }
    }

    #[test]
    fn unsigned_and_signed_extremes_keep_their_order() {
        assert!(
            int_key(i64::MIN) < int_key(-1) && int_key(-1) < int_key(0) && int_key(0) < int_key(i64::MAX)
        );
        assert_eq!(float_key(-0.0), float_key(0.0));
    }

    proptest! {
        #[test]
        fn keys_compare_as_their_values_do(a: i64, b: i64, x: f64, y: f64) {
            prop_assert_eq!(int_key(a).cmp(&int_key(b)), a.cmp(&b));
            prop_assert_eq!(int_of_key(int_key(a)), a);
            if let Some(order) = x.partial_cmp(&y) {
                prop_assert_eq!(float_key(x).cmp(&float_key(y)), order);
                prop_assert_eq!(float_of_key(float_key(x)), x);
            }
        }

        #[test]
        fn decimal_keys_compare_as_scaled_integers_do(
            a in -10_000_000i64..10_000_000,
            b in -10_000_000i64..10_000_000,
        ) {
            let text = |n: i64| {
                let sign = if n < 0 { "-" } else { "" };
                format!("{sign}{}.{:03}", n.abs() / 1000, n.abs() % 1000)
            };
            let (ka, kb) = (decimal_key(&text(a)), decimal_key(&text(b)));
            prop_assert_eq!(ka.cmp(&kb), a.cmp(&b));
        }
    }
}
