//! Canonical IEEE 754 bits for hashing (`spec/cdc-adapter.md` §5.2): −0 becomes +0, every NaN becomes the
//! quiet NaN without payload. Bits are written little-endian by the caller.

const F16_EXPONENT: u16 = 0x7C00;
const F16_FRACTION: u16 = 0x03FF;
const F16_NEGATIVE_ZERO: u16 = 0x8000;
const F16_NAN: u16 = 0x7E00;
const F32_NAN: u32 = 0x7FC0_0000;
const F64_NAN: u64 = 0x7FF8_0000_0000_0000;

/// Canonical bits of a binary32.
pub fn f32_bits(value: f32) -> u32 {
    if value.is_nan() {
        F32_NAN
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// Canonical bits of a binary64.
pub fn f64_bits(value: f64) -> u64 {
    if value.is_nan() {
        F64_NAN
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// Canonical bits of a binary16, given as bits.
pub const fn f16_bits(bits: u16) -> u16 {
    if bits & F16_EXPONENT == F16_EXPONENT && bits & F16_FRACTION != 0 {
        F16_NAN
    } else if bits == F16_NEGATIVE_ZERO {
        0
    } else {
        bits
    }
}

/// Whether a binary16, given as bits, is neither infinite nor NaN.
pub const fn f16_is_finite(bits: u16) -> bool {
    bits & F16_EXPONENT != F16_EXPONENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_zeros_have_the_same_bits() {
        assert_eq!((f32_bits(-0.0), f64_bits(-0.0), f16_bits(0x8000)), (0, 0, 0));
    }

    #[test]
    fn every_nan_has_the_same_bits() {
        assert_eq!(f32_bits(f32::from_bits(0xFFC0_1234)), 0x7FC0_0000);
        assert_eq!(f64_bits(f64::from_bits(0x7FF0_0000_0000_0001)), 0x7FF8_0000_0000_0000);
        assert_eq!(f16_bits(0xFC01), 0x7E00);
    }

    #[test]
    fn other_numbers_keep_their_bits() {
        // 1.0 has exponent 127, 1023 and 15; infinity is the largest exponent without fraction.
        assert_eq!((f32_bits(1.0), f64_bits(1.0), f16_bits(0x3C00)), (0x3F80_0000, 0x3FF0 << 48, 0x3C00));
        assert_eq!(f32_bits(f32::NEG_INFINITY), 0xFF80_0000);
        assert!(f16_is_finite(0x7BFF) && !f16_is_finite(0x7C00) && !f16_is_finite(0x7E00));
    }
}
