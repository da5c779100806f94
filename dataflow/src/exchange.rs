//! A device behind the lines of `interface::pio`: the host's half, and what a core that plays the device runs.

use conic_fabric::Core;
use conic_interface::pio::{self, Host, Poll};
use conic_load::invocation::{Service, look};
use timely::scheduling::SyncActivator;

use crate::device::{Device, Fault};
use crate::program::Executor;

/// How the host's half tells whoever plays the device whom to wake.
type Tell = Box<dyn FnMut(SyncActivator)>;

/// Whether whoever plays the device is gone.
type IsGone = Box<dyn Fn() -> bool>;

/// The host's half of an exchange over lines.
pub struct Exchange<C> {
    host: Host<C>,
    tell: Tell,
    is_gone: IsGone,
    /// The device wakes whoever looks: then there is one look when it has, and it must not be left out.
    is_woken: bool,
}

impl<C: Core> Exchange<C> {
    /// A device behind a host's half. `tell` takes whom to wake to where the device is played; with [`crate::Calls::Blocking`] it is not
    /// called.
    pub fn new(host: Host<C>, tell: impl FnMut(SyncActivator) + 'static) -> Exchange<C> {
        Exchange { host, tell: Box::new(tell), is_gone: Box::new(|| false), is_woken: false }
    }

    /// The same with a device whose player may go before the graph does: it must be gone, for `is_gone`, before its [`Serving`] is dropped,
    /// which wakes. What it answered before is taken; what it did not is [`Fault::Stopped`] instead of being waited for. Lines show
    /// no death: without this, a graph waits for ever.
    #[must_use]
    pub fn watching(self, is_gone: impl Fn() -> bool + 'static) -> Exchange<C> {
        Exchange { is_gone: Box::new(is_gone), ..self }
    }
}

impl<C: Core + 'static> Device for Exchange<C> {
    fn capacity(&self) -> usize {
        self.host.lines().shape().capacity() as usize
    }

    #[inline]
    fn begin(&mut self, request: &[u8], most: usize) -> Result<(), Fault> {
        self.host.begin(request, most).map_err(Fault::NotBegun)
    }

    #[inline]
    fn poll(&mut self, response: &mut Vec<u8>) -> Result<bool, Fault> {
        let Exchange { host, is_gone, is_woken, .. } = self;
        let poll = |is_last| if *is_woken || is_last { host.poll() } else { host.poll_in_time() };
        match look(poll, is_gone).ok_or(Fault::Stopped)? {
            Poll::NotYet => Ok(false),
            Poll::Refused => Err(Fault::Lines),
            Poll::Response(bytes) => {
                response.resize(bytes, 0);
                self.host.read(response);
                Ok(true)
            }
        }
    }

    fn spin(&self) {
        self.host.core().spin();
    }

    fn wake_by(&mut self, activator: SyncActivator) {
        self.is_woken = true;
        (self.tell)(activator);
    }
}

/// The device's half, for the core that plays it.
#[derive(Debug)]
pub struct Serving<D> {
    service: Service<D, Executor>,
    wake: Option<SyncActivator>,
}

impl<D: pio::Device> Serving<D> {
    /// Runs a program behind a device's half whose exchanges hold so many bytes.
    pub fn new(device: D, executor: Executor, capacity: usize) -> Serving<D> {
        Serving { service: Service::new(device, executor, capacity), wake: None }
    }

    /// Wakes this operator after each response from now on; and once now, for a response of before.
    pub fn wake(&mut self, activator: SyncActivator) {
        // The worker is gone, and wants nothing.
        let _ = activator.activate();
        self.wake = Some(activator);
    }

    /// Serves a request, if there is one.
    #[inline]
    pub fn serve(&mut self) -> bool {
        let served = self.service.serve();
        if served && let Some(wake) = &self.wake {
            // The worker is gone, and wants nothing.
            let _ = wake.activate();
        }
        served
    }

    /// Whether the graph said that nothing more comes.
    pub fn is_closed(&self) -> bool {
        self.service.function().is_closed()
    }

    /// The device's half.
    pub fn device(&self) -> &D {
        self.service.device()
    }
}

impl<D> Drop for Serving<D> {
    fn drop(&mut self) {
        if let Some(wake) = &self.wake {
            // Whoever waits for an answer finds that none comes (`Exchange::watching`). The worker may be gone.
            let _ = wake.activate();
        }
    }
}
