//! Whether a raw key lies in a span of encoded keys.

use bytes::Bytes;
use tidegate_codec::key::{decode_bytes, to_region_key};
use tidegate_core::Span;

/// A span, prepared for raw keys. Memcomparable encoding keeps the order, so a bound that decodes is compared
/// as it is; encoding every key of every row would cost more than everything else done with it.
#[derive(Clone, Debug)]
pub struct KeyBounds {
    span: Span,
    /// Raw start and end; an empty end is plus infinity. `None` if a bound is no encoded key, as after a
    /// split at a cut-off key.
    raw: Option<(Bytes, Bytes)>,
}

impl KeyBounds {
    /// The bounds of `span`.
    pub fn new(span: &Span) -> Self {
        let raw = raw(&span.start).zip(raw(&span.end));
        Self { span: span.clone(), raw }
    }

    /// Whether the raw `key` lies inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.raw {
            Some((start, end)) => start.as_ref() <= key && (end.is_empty() || key < end.as_ref()),
            None => self.span.contains(&to_region_key(key)),
        }
    }
}

/// The raw key behind an encoded bound; the empty bound stays empty. The encoded empty key is not told apart
/// from the empty bound as a start, where both mean the same; as an end it would exclude every key, so it
/// counts as not decodable.
fn raw(bound: &Bytes) -> Option<Bytes> {
    if bound.is_empty() {
        return Some(Bytes::new());
    }
    match decode_bytes(bound) {
        Ok((key, [])) if !key.is_empty() => Some(Bytes::from(key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(key: &[u8]) -> Bytes {
        Bytes::from(to_region_key(key))
    }

    proptest! {
        #[test]
        fn the_answer_is_that_of_the_encoded_comparison(
            start in prop::collection::vec(0_u8..4, 0..12),
            end in prop::collection::vec(0_u8..4, 0..12),
            key in prop::collection::vec(0_u8..4, 0..12),
            cut in 0_usize..12,
        ) {
            let mut start = encoded(&start);
            // Some bounds are cut off in the middle, as splits may do.
            start.truncate(start.len().saturating_sub(cut));
            let span = Span::new(start, encoded(&end));
            let wanted = span.contains(&encoded(&key));
            prop_assert_eq!(KeyBounds::new(&span).contains(&key), wanted);
        }
    }

    #[test]
    fn empty_bounds_are_infinite() {
        let all = KeyBounds::new(&Span::all());
        assert!(all.contains(b"") && all.contains(&[0xff; 40]));
    }
}
