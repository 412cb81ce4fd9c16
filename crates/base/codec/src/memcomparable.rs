//! Encodings whose bytes sort as their values do (`reference/tidb-keys-and-rows.md` §1).

use crate::key::KeyError;

/// Data bytes in one group of the byte encoding.
const GROUP: usize = 8;
/// The marker of a full group; a group with `n` padding bytes has `FULL - n`.
const FULL: u8 = 0xff;
const SIGN: u64 = 1 << 63;

/// The eight bytes of a signed integer: sign bit flipped, big endian.
pub const fn int_bytes(value: i64) -> [u8; 8] {
    (value.cast_unsigned() ^ SIGN).to_be_bytes()
}

/// Undoes [`int_bytes`].
pub const fn int_from_bytes(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ SIGN).cast_signed()
}

/// The eight bytes of a float (§1.4). The sign of a negative zero is lost, as in TiDB.
pub fn float_bytes(value: f64) -> [u8; 8] {
    let bits = value.to_bits();
    let ordered = if value >= 0.0 { bits | SIGN } else { !bits };
    ordered.to_be_bytes()
}

/// Undoes [`float_bytes`].
pub const fn float_from_bytes(bytes: [u8; 8]) -> f64 {
    let ordered = u64::from_be_bytes(bytes);
    f64::from_bits(if ordered & SIGN != 0 { ordered ^ SIGN } else { !ordered })
}

/// Turns an ascending encoding into its descending form, and back: every bit inverted.
pub fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

/// Length of the encoding of `len` bytes.
pub const fn encoded_len(len: usize) -> usize {
    (len / GROUP + 1) * (GROUP + 1)
}

/// Appends the ascending encoding of `bytes` (§1.2): groups of eight, each followed by a marker.
pub fn encode_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(encoded_len(bytes.len()));
    let (groups, last) = bytes.as_chunks::<GROUP>();
    for group in groups {
        out.extend_from_slice(group);
        out.push(FULL);
    }
    out.extend_from_slice(last);
    let padding = GROUP - last.len();
    out.resize(out.len() + padding, 0);
    out.push(FULL - u8::try_from(padding).expect("padding is at most eight"));
}

/// Appends the descending encoding of `bytes`.
pub fn encode_bytes_desc(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    encode_bytes(out, bytes);
    invert(out.get_mut(start..).unwrap_or_default());
}

/// Decodes one ascending byte string and returns it with what follows. Allocates at most the input's size.
///
/// # Errors
/// The input ends inside a group, a marker is impossible, or padding is not zero.
pub fn decode_bytes(encoded: &[u8]) -> Result<(Vec<u8>, &[u8]), KeyError> {
    decode_groups(encoded, 0)
}

/// Decodes one descending byte string.
///
/// # Errors
/// As [`decode_bytes`].
pub fn decode_bytes_desc(encoded: &[u8]) -> Result<(Vec<u8>, &[u8]), KeyError> {
    decode_groups(encoded, 0xff)
}

/// Splits one ascending byte string, still encoded, from what follows.
///
/// # Errors
/// The input ends before the last group.
pub fn split_encoded(encoded: &[u8]) -> Result<(&[u8], &[u8]), KeyError> {
    let mut end = 0;
    for (group, marker) in groups(encoded, 0) {
        end += group.len() + 1;
        if marker != FULL {
            return encoded.split_at_checked(end).ok_or(KeyError::Truncated { offset: end });
        }
    }
    Err(KeyError::Truncated { offset: end })
}

/// Whole groups of eight bytes and their markers.
fn groups(encoded: &[u8], mask: u8) -> impl Iterator<Item = (&[u8; GROUP], u8)> {
    let (groups, _) = encoded.as_chunks::<{ GROUP + 1 }>();
    groups
        .iter()
        .filter_map(move |group| group.split_first_chunk().zip(group.last()))
        .map(move |((data, _), marker)| (data, marker ^ mask))
}

fn decode_groups(encoded: &[u8], mask: u8) -> Result<(Vec<u8>, &[u8]), KeyError> {
    let mut out = Vec::new();
    let mut offset = 0;
    for (group, marker) in groups(encoded, mask) {
        let padding = usize::from(FULL - marker);
        let data =
            GROUP.checked_sub(padding).ok_or(KeyError::BadMarker { marker, offset: offset + GROUP })?;
        let (data, pad) = group.split_at(data);
        if pad.iter().any(|byte| byte ^ mask != 0) {
            return Err(KeyError::BadPadding { offset });
        }
        out.extend(data.iter().map(|byte| byte ^ mask));
        offset += GROUP + 1;
        if padding > 0 {
            return Ok((out, encoded.get(offset..).unwrap_or_default()));
        }
    }
    Err(KeyError::Truncated { offset })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::hex;

    #[test]
    fn byte_strings_encode_as_the_reference_lists_them() {
        let cases: [(&[u8], &str); 7] = [
            (b"", "0000000000000000f7"),
            (b"a", "6100000000000000f8"),
            (b"abc", "6162630000000000fa"),
            (b"abc\0", "6162630000000000fb"),
            (b"12345678", "3132333435363738ff0000000000000000f7"),
            (b"123456789", "3132333435363738ff3900000000000000f8"),
            (&[0xff; 8], "ffffffffffffffffff0000000000000000f7"),
        ];
        for (plain, encoded) in cases {
            let mut out = Vec::new();
            encode_bytes(&mut out, plain);
            assert_eq!(out, hex(encoded));
            assert_eq!(out.len(), encoded_len(plain.len()));
            assert_eq!(decode_bytes(&out).unwrap(), (plain.to_vec(), &[][..]));
        }
        let mut out = Vec::new();
        encode_bytes_desc(&mut out, b"abc");
        assert_eq!(out, hex("9e9d9cffffffffff05"));
        assert_eq!(decode_bytes_desc(&out).unwrap().0, b"abc");
    }

    #[test]
    fn damaged_groups_are_refused_with_their_offset() {
        let cases = [
            ("61626300000000", KeyError::Truncated { offset: 0 }),
            ("3132333435363738ff39", KeyError::Truncated { offset: 9 }),
            ("6162630000000000f6", KeyError::BadMarker { marker: 0xf6, offset: 8 }),
            ("6162630000000001fa", KeyError::BadPadding { offset: 0 }),
        ];
        for (encoded, error) in cases {
            assert_eq!(decode_bytes(&hex(encoded)).unwrap_err(), error);
        }
    }

    #[test]
    fn numbers_encode_as_the_reference_lists_them() {
        let ints = [(0, "8000000000000000"), (-1, "7fffffffffffffff"), (255, "80000000000000ff")];
        for (value, encoded) in ints {
            assert_eq!(int_bytes(value).to_vec(), hex(encoded));
        }
        let floats = [
            (0.0, "8000000000000000"),
            (-0.0, "8000000000000000"),
            (-1.0, "400fffffffffffff"),
            (-2.5, "3ffbffffffffffff"),
            (f64::from(0.1_f32), "bfb99999a0000000"),
            (f64::INFINITY, "fff0000000000000"),
            (f64::NEG_INFINITY, "000fffffffffffff"),
        ];
        for (value, encoded) in floats {
            assert_eq!(float_bytes(value).to_vec(), hex(encoded), "{value}");
        }
    }

    proptest! {
        #[test]
        fn encoded_bytes_sort_as_the_plain_ones(a: Vec<u8>, b: Vec<u8>) {
            let (mut ea, mut eb) = (Vec::new(), Vec::new());
            encode_bytes(&mut ea, &a);
            encode_bytes(&mut eb, &b);
            prop_assert_eq!(a.cmp(&b), ea.cmp(&eb));
            ea.extend_from_slice(&b);
            prop_assert_eq!(decode_bytes(&ea).unwrap(), (a, b.as_slice()));
        }

        #[test]
        fn encoded_numbers_sort_as_the_plain_ones(a: i64, b: i64, x: f64, y: f64) {
            prop_assert_eq!(int_bytes(a).cmp(&int_bytes(b)), a.cmp(&b));
            prop_assert_eq!(int_from_bytes(int_bytes(a)), a);
            prop_assume!(!x.is_nan() && !y.is_nan());
            prop_assert_eq!(Some(float_bytes(x).cmp(&float_bytes(y))), x.partial_cmp(&y));
            prop_assert_eq!(float_from_bytes(float_bytes(x)), x);
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = decode_bytes(&bytes);
            let _ = decode_bytes_desc(&bytes);
            let _ = split_encoded(&bytes);
        }
    }
}
