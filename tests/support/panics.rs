//! Panics that a test means to have, some by the thousand: nobody is told of them, and everybody of those of the other tests that run in
//! the same process. Proves nothing by itself.

use std::cell::Cell;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

/// Which panics are meant.
type Which = fn(&PanicHookInfo<'_>) -> bool;

thread_local! {
    static MEANT: Cell<Option<Which>> = const { Cell::new(None) };
}

/// While it lives, the panics of this thread that are meant are told nowhere. A test runner runs its jobs on the thread of the test.
#[must_use]
pub(crate) struct Silence(());

pub(crate) fn silence(meant: Which) -> Silence {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !MEANT.get().is_some_and(|meant| meant(info)) {
                usual(info);
            }
        }));
    });
    MEANT.set(Some(meant));
    Silence(())
}

impl Drop for Silence {
    fn drop(&mut self) {
        MEANT.set(None);
    }
}
