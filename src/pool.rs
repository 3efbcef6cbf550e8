//! A bound on what runs at once, as units that are handed out and come back. Pure bookkeeping: nothing waits here.

use std::sync::atomic::{AtomicU64, Ordering};

/// `capacity` units. Held and available always add up to the capacity.
#[derive(Debug)]
pub struct Pool {
    id: u64,
    capacity: u32,
    available: u32,
}

impl Pool {
    /// A pool with all its units available.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        // Pools tell their permits apart by number; the numbers mean nothing else.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), capacity, available: capacity }
    }

    /// Takes exactly `units`, or refuses and changes nothing.
    pub const fn reserve(&mut self, units: u32) -> Option<Permit> {
        let Some(left) = self.available.checked_sub(units) else { return None };
        self.available = left;
        Some(Permit { pool: self.id, units })
    }

    /// Takes a permit back.
    ///
    /// # Errors
    /// Gives the permit back when it came from another pool; nothing has changed.
    pub const fn release(&mut self, permit: Permit) -> Result<(), Permit> {
        if permit.pool != self.id {
            return Err(permit);
        }
        // Permits are made only by this pool's reserve, and only moved, split and joined: the sum fits.
        self.available += permit.units;
        Ok(())
    }

    /// All units.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Units that nobody holds.
    #[must_use]
    pub const fn available(&self) -> u32 {
        self.available
    }

    /// Units that somebody holds.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.capacity - self.available
    }
}

/// Units taken from one pool. Cannot be copied or made; goes back whole, in parts, or joined with others.
#[must_use = "a permit that is dropped is lost to its pool"]
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    pool: u64,
    units: u32,
}

impl Permit {
    /// How many units it holds.
    pub const fn units(&self) -> u32 {
        self.units
    }

    /// Takes `units` off this permit into one of their own, or refuses and changes nothing.
    pub const fn split(&mut self, units: u32) -> Option<Self> {
        let Some(left) = self.units.checked_sub(units) else { return None };
        self.units = left;
        Some(Self { pool: self.pool, units })
    }

    /// Adds `other` to this permit.
    ///
    /// # Errors
    /// Gives `other` back when it came from another pool; nothing has changed.
    pub const fn join(&mut self, other: Self) -> Result<(), Self> {
        if other.pool != self.pool {
            return Err(other);
        }
        self.units += other.units;
        Ok(())
    }
}
