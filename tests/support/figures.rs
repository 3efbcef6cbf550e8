//! What the tests of the fault table share: how much to try, and the line that says how much was tried.

/// How many times to try: `usual`, or `release` when `JOURNEYMAN_FIGURES=release` asks for what is shown before a release. With
/// `least` a sixteenth, for what runs the tests hundreds of times. Of a step, which is smaller before a release, that would be more.
pub(crate) fn figure(usual: u64, release: u64) -> u64 {
    match std::env::var("JOURNEYMAN_FIGURES").as_deref() {
        Ok("release") => release,
        Ok("least") if usual <= release => (usual / 16).max(1),
        Ok("least") => usual,
        Ok(other) => panic!("JOURNEYMAN_FIGURES is {other:?}, neither \"release\" nor \"least\""),
        Err(_) => usual,
    }
}

/// Says that all of a row's tries held what the row promises: `F4: 120000 crash states, 0 violations`. It stands behind the
/// asserts, so that a violation is a failed test and prints nothing.
pub(crate) fn held(row: &str, tries: u64, what: &str) {
    println!("{row}: {tries} {what}, 0 violations");
}
