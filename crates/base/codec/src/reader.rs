//! A cursor over untrusted bytes: every read is checked and says `None` at the end instead of panicking.

/// Reads forward through a byte slice and knows how far it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, len: bytes.len() }
    }

    /// Bytes already read.
    pub(crate) const fn offset(&self) -> usize {
        self.len - self.rest.len()
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32_le(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64_be(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// LEB128, at most ten bytes and no bits above the 64th.
    pub(crate) fn uvarint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Zig-zag LEB128.
    pub(crate) fn varint(&mut self) -> Option<i64> {
        let raw = self.uvarint()?;
        Some((raw >> 1).cast_signed() ^ -((raw & 1).cast_signed()))
    }

    /// A length written as LEB128 and that many bytes.
    pub(crate) fn sized(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.uvarint()?).ok()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_the_reference_are_read_back() {
        let cases: [(&[u8], i64); 6] = [
            (&[0x00], 0),
            (&[0x02], 1),
            (&[0x01], -1),
            (&[0xfe, 0x03], 255),
            (&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], i64::MAX),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], i64::MIN),
        ];
        for (bytes, value) in cases {
            assert_eq!(Reader::new(bytes).varint(), Some(value), "{bytes:02x?}");
        }
    }

    #[test]
    fn an_overlong_or_unfinished_varint_is_refused() {
        assert_eq!(Reader::new(&[0xff; 10]).uvarint(), None);
        assert_eq!(Reader::new(&[0x80, 0x80]).uvarint(), None);
        let mut eleven = [0x80; 11];
        eleven[10] = 0;
        assert_eq!(Reader::new(&eleven).uvarint(), None);
    }
}
