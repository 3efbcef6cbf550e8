//! The laws of the pool: it has all its units at any time, in hand or handed out, and takes back only its own.

use journeyman_core::pool::{Permit, Pool};
use quickcheck::{Arbitrary, Gen};

use super::CASES;
use crate::support::{Edgy, holds};

#[test]
fn held_and_available_are_the_capacity_whatever_happens() {
    holds(CASES, |(capacity, acts): (Edgy, Vec<Act>)| {
        let mut pool = Pool::new(capacity.number());
        let mut permits: Vec<Permit> = Vec::new();
        for act in acts {
            act.apply(&mut pool, &mut permits);
            let units: u64 = permits.iter().map(|permit| u64::from(permit.units())).sum();
            assert_eq!(u64::from(pool.held()), units, "what is held is what the permits say");
            assert_eq!(u64::from(pool.held()) + u64::from(pool.available()), u64::from(pool.capacity()));
            assert_eq!(pool.capacity(), capacity.number());
        }
        permits.into_iter().for_each(|permit| pool.release(permit).expect("its own"));
        assert_eq!(pool.available(), capacity.number(), "all come back");
    });
}

#[test]
fn a_permit_of_another_pool_is_refused_and_given_back() {
    holds(CASES, |(capacity, units): (Edgy, Edgy)| {
        let units = units.number().min(capacity.number());
        let (mut here, mut there) = (Pool::new(capacity.number()), Pool::new(capacity.number()));
        let mut own = here.reserve(units).expect("within the capacity");
        let foreign = there.reserve(units).expect("within the capacity");
        let foreign = own.join(foreign).expect_err("of another pool");
        let foreign = here.release(foreign).expect_err("of another pool");
        assert_eq!((own.units(), foreign.units(), here.held(), there.held()), (units, units, units, units));
        there.release(foreign).expect("its own");
        assert_eq!(there.held(), 0);
    });
}

#[derive(Clone, Debug)]
enum Act {
    Reserve(Edgy),
    Release(u8),
    Split(u8, Edgy),
    Join(u8, u8),
}

impl Act {
    /// Does it, and checks that exactly that is done or nothing at all.
    fn apply(&self, pool: &mut Pool, permits: &mut Vec<Permit>) {
        let count = permits.len();
        match *self {
            Self::Reserve(units) => {
                let (units, free) = (units.number(), pool.available());
                let permit = pool.reserve(units);
                assert_eq!(permit.as_ref().map(Permit::units), (units <= free).then_some(units));
                assert_eq!(pool.available(), if units <= free { free - units } else { free });
                permits.extend(permit);
            }
            Self::Release(_) | Self::Split(..) | Self::Join(..) if count == 0 => {}
            Self::Release(n) => pool.release(permits.swap_remove(usize::from(n) % count)).expect("its own"),
            Self::Split(n, units) => {
                let (permit, units) = (&mut permits[usize::from(n) % count], units.number());
                let whole = permit.units();
                let part = permit.split(units);
                assert_eq!(part.as_ref().map(Permit::units), (units <= whole).then_some(units));
                assert_eq!(permit.units(), if units <= whole { whole - units } else { whole });
                permits.extend(part);
            }
            Self::Join(n, m) => {
                let mut joined = permits.swap_remove(usize::from(n) % count);
                if count > 1 {
                    let other = permits.swap_remove(usize::from(m) % (count - 1));
                    let sum = joined.units() + other.units();
                    joined.join(other).expect("of one pool");
                    assert_eq!(joined.units(), sum);
                }
                permits.push(joined);
            }
        }
    }
}

impl Arbitrary for Act {
    fn arbitrary(g: &mut Gen) -> Self {
        let (n, m, units) = (u8::arbitrary(g), u8::arbitrary(g), Edgy::arbitrary(g));
        g.choose(&[Self::Reserve(units), Self::Reserve(units), Self::Release(n), Self::Split(n, units), Self::Join(n, m)])
            .expect("one")
            .clone()
    }
}
