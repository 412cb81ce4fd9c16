//! Which store versions are understood.

use tidegate_pd::Store;

use crate::failure::Failure;

/// The oldest minor version whose change feed is understood (`reference/cdc-protocol.md` §11).
const OLDEST: (u64, u64) = (7, 5);
/// Versions from here on are placeholders of development builds that never were released.
const TOO_NEW_MAJOR: u64 = 9999;

/// Fails with [`Failure::StoreVersion`] if a store that serves change feeds is too old, or its version cannot
/// be read.
pub(crate) fn check(stores: &[Store]) -> Result<(), Failure> {
    let wrong = stores.iter().find(|store| !store.is_tiflash() && !is_understood(&store.version));
    match wrong {
        None => Ok(()),
        Some(store) => Err(Failure::StoreVersion {
            version: store.version.clone(),
            required: format!("at least {}.{}", OLDEST.0, OLDEST.1),
        }),
    }
}

fn is_understood(version: &str) -> bool {
    parse(version).is_some_and(|(major, minor)| (major, minor) >= OLDEST && major < TOO_NEW_MAJOR)
}

/// Major and minor of a semver text with an optional leading `v`; the patch must be a number too.
fn parse(version: &str) -> Option<(u64, u64)> {
    let core = version.trim_start_matches('v').split(['-', '+']).next()?;
    let mut numbers = core.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor, _patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_7_5_on_are_understood() {
        for version in
            ["7.5.0-alpha", "v7.5.1", "8.5.4", "8.5.4-nextgen.202510.5", "9.0.0-beta.2+dirty", "10.0.0"]
        {
            assert!(is_understood(version), "{version}");
        }
        for version in ["", "7.4.9", "v6.5.0", "nightly", "8.5", "8.x.1", "9999.0.0"] {
            assert!(!is_understood(version), "{version}");
        }
    }
}
