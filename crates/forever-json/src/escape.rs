//! The escaped forms of writer and reader: their names, and the texts inside them.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::error::Error;

/// Maximum nesting of arrays and objects.
///
/// `serde_json` reads 127 levels into a `Value`; the difference is for the text around a value. The
/// calls around a local do not count: each level of a snapshot is read separately.
pub(super) const MAX_DEPTH: usize = 100;

/// Maximum number of options and newtypes that may be open at once; they add no text and so no
/// depth.
///
/// Types that contain themselves through these alone would otherwise end in a stack overflow.
pub(super) const MAX_WRAPS: usize = 400;

/// Name of `serde_json::value::RawValue` for serializers and deserializers.
pub(super) const RAW: &str = "$serde_json::private::RawValue";

/// Name of `serde_json::Number` with the feature `arbitrary_precision`.
pub(super) const NUMBER: &str = "$serde_json::private::Number";

/// Common prefix of both. As the key of a map it would be read as one of them.
pub(super) const RESERVED: &str = "$serde_json::private::";

pub(super) fn too_deep() -> Error {
    Error::new(format_args!("nested deeper than {MAX_DEPTH} levels"))
}

pub(super) fn too_wrapped() -> Error {
    Error::new(format_args!("nested deeper than {MAX_WRAPS} options and newtypes"))
}

/// The text of a float that is not a JSON number: `NaN`, `inf`, `-inf`, or `NaN:` and the bits of
/// any other NaN.
pub(super) fn f64_text(value: f64) -> String {
    match value.to_bits() {
        QUIET_NAN_64 => "NaN".to_owned(),
        bits if value.is_nan() => format!("NaN:{bits:016x}"),
        _ => value.to_string(),
    }
}

/// As [`f64_text`].
pub(super) fn f32_text(value: f32) -> String {
    match value.to_bits() {
        QUIET_NAN_32 => "NaN".to_owned(),
        bits if value.is_nan() => format!("NaN:{bits:08x}"),
        _ => value.to_string(),
    }
}

/// The NaN of arithmetic; its bits are spelled out, since `f64::NAN` does not guarantee any.
const QUIET_NAN_64: u64 = 0x7ff8_0000_0000_0000;
const QUIET_NAN_32: u32 = 0x7fc0_0000;

pub(super) fn f64_value(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::from_bits(QUIET_NAN_64)),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => {
            let bits = text.strip_prefix("NaN:").filter(|hex| hex.len() == 16)?;
            Some(f64::from_bits(u64::from_str_radix(bits, 16).ok()?)).filter(|value| value.is_nan())
        }
    }
}

pub(super) fn f32_value(text: &str) -> Option<f32> {
    match text {
        "NaN" => Some(f32::from_bits(QUIET_NAN_32)),
        "inf" => Some(f32::INFINITY),
        "-inf" => Some(f32::NEG_INFINITY),
        _ => {
            let bits = text.strip_prefix("NaN:").filter(|hex| hex.len() == 8)?;
            Some(f32::from_bits(u32::from_str_radix(bits, 16).ok()?)).filter(|value| value.is_nan())
        }
    }
}

/// Appends the base64 (standard alphabet, padded) of `bytes`.
pub(super) fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Error> {
    let start = out.len();
    let len = base64::encoded_len(bytes.len(), true).ok_or_else(|| Error::new("too many bytes"))?;
    out.resize(start + len, 0);
    STANDARD.encode_slice(bytes, &mut out[start..]).map_err(Error::new)?;
    Ok(())
}

pub(super) fn base64_value(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
