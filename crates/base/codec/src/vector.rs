//! VECTOR of float32 (`reference/tidb-keys-and-rows.md` §5.13).

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

/// A vector in its stored form: dimension, then little-endian float32s.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Vector<'a>(Cow<'a, [u8]>);

impl<'a> Vector<'a> {
    /// Reads a vector from the front of `bytes`; `None` when they end before its last element.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let len = Self::encoded_len(bytes)?;
        Some(Self(Cow::Borrowed(bytes.get(..len)?)))
    }

    /// Bytes that the vector at the front of `bytes` takes.
    pub fn encoded_len(bytes: &[u8]) -> Option<usize> {
        let dimension = usize::try_from(u32::from_le_bytes(*bytes.first_chunk()?)).ok()?;
        let len = dimension.checked_mul(4)?.checked_add(4)?;
        (len <= bytes.len()).then_some(len)
    }

    /// A vector of these elements; `None` for more than `u32::MAX` of them.
    pub fn from_elements(elements: &[f32]) -> Option<Vector<'static>> {
        let dimension = u32::try_from(elements.len()).ok()?;
        let mut bytes = dimension.to_le_bytes().to_vec();
        bytes.extend(elements.iter().flat_map(|element| element.to_le_bytes()));
        Some(Vector(Cow::Owned(bytes)))
    }

    /// Reads `[1,2.5,-3]`; blanks are allowed. `None` for anything else.
    pub fn parse(text: &str) -> Option<Vector<'static>> {
        let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
        if inner.is_empty() {
            return Vector::from_elements(&[]);
        }
        let elements: Vec<f32> =
            inner.split(',').map(|part| part.trim().parse().ok()).collect::<Option<_>>()?;
        elements.iter().all(|element| element.is_finite()).then(|| Vector::from_elements(&elements)).flatten()
    }

    /// The stored form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many elements there are.
    pub fn dimension(&self) -> usize {
        self.0.len().saturating_sub(4) / 4
    }

    /// The elements.
    pub fn elements(&self) -> impl ExactSizeIterator<Item = f32> + '_ {
        let (chunks, _) = self.0.get(4..).unwrap_or_default().as_chunks::<4>();
        chunks.iter().map(|bytes| f32::from_le_bytes(*bytes))
    }

    /// Appends the text form: shortest digits that give back each float, never with an exponent.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (at, element) in self.elements().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write!(out, "{element}").expect("writing to memory cannot fail");
        }
        out.push(b']');
    }

    /// The same vector, borrowing from this one.
    pub fn reborrow(&self) -> Vector<'_> {
        Vector(Cow::Borrowed(&self.0))
    }

    /// The same vector, borrowing from nothing.
    pub fn into_owned(self) -> Vector<'static> {
        Vector(Cow::Owned(self.0.into_owned()))
    }
}

impl fmt::Debug for Vector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.elements()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::hex;

    fn text(vector: &Vector<'_>) -> String {
        let mut out = Vec::new();
        vector.write_text(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn vectors_of_the_reference_print_as_listed() {
        let bytes = hex("030000000000803f00002040000040c0");
        let vector = Vector::decode(&bytes).unwrap();
        assert_eq!((text(&vector).as_str(), vector.dimension()), ("[1,2.5,-3]", 3));
        assert_eq!(Vector::parse("[1, 2.5, -3]").unwrap().as_bytes(), bytes);
        assert_eq!(text(&Vector::decode(&hex("00000000")).unwrap()), "[]");
        let shown = "[0.0000001,10000000000,100000000000000000000,0.1,123456.79,-0]";
        let parsed = Vector::parse("[1e-7,1e10,1e20,0.1,123456.789,-0]").unwrap();
        assert_eq!(text(&parsed), shown);
    }

    #[test]
    fn a_dimension_beyond_the_bytes_is_refused() {
        for bad in ["", "010000", "0100000000", "ffffffff00000000"] {
            assert_eq!(Vector::decode(&hex(bad)), None);
        }
        for bad in ["", "[", "1,2", "[1,]", "[a]", "[inf]", "[1e39]"] {
            assert_eq!(Vector::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_gives_back_every_element(elements in proptest::collection::vec(-1e30_f32..1e30, 0..8)) {
            let vector = Vector::from_elements(&elements).unwrap();
            prop_assert_eq!(Vector::parse(&text(&vector)).unwrap(), vector);
        }
    }
}
