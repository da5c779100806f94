//! A queue of a DPDK device, over `shim.c`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use conic_fabric::Time;
use conic_native::Closer;

use super::{DpdkError, DpdkOptions, DpdkProblem};
use crate::{Counters, Legacy, MAX_FRAME, Port, PortError, Receive, Transmit};

/// A queue, as `shim.c` has it.
#[repr(C)]
struct Queue {
    _opaque: [u8; 0],
}

/// Buffers, as DPDK has them.
#[repr(C)]
struct Buffers {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn conic_dpdk_start(count: c_int, arguments: *mut *mut c_char) -> c_int;
    fn conic_dpdk_find(device: *const c_char) -> c_int;
    fn conic_dpdk_pool(number: u32, queues: u16, slots: u16, made: *mut *mut Buffers) -> c_int;
    fn conic_dpdk_free(pool: *mut Buffers);
    fn conic_dpdk_configure(port: u16, queues: u16, slots: u16, pool: *mut Buffers, made: *mut *mut Queue) -> c_int;
    fn conic_dpdk_receive(queue: *mut Queue, frame: *mut u8, room: u32) -> u32;
    fn conic_dpdk_transmit(queue: *mut Queue, frame: *const u8, length: u32) -> c_int;
    fn conic_dpdk_flush(queue: *mut Queue) -> u16;
    fn conic_dpdk_link(queue: *const Queue) -> c_int;
    fn conic_dpdk_statistics(queue: *const Queue, values: *mut u64) -> c_int;
    fn conic_dpdk_identity(queue: *const Queue, driver: *mut *const c_char, address: *mut u8) -> c_int;
    fn conic_dpdk_close(queue: *mut Queue);
    fn conic_dpdk_release(port: u16);
    fn conic_dpdk_error(error: c_int) -> *const c_char;
}

/// Whether DPDK has been started, and what it said if it was not.
static STARTED: OnceLock<Result<(), i32>> = OnceLock::new();
/// Devices are found and configured one after the other: DPDK's control path is for one thread.
static CONTROL: Mutex<Control> = Mutex::new(Control { pools: 0, prepared: Vec::new() });

/// What that thread has.
struct Control {
    /// Pools that were made so far.
    pools: u32,
    /// Those that were made for devices that are still to be opened.
    prepared: Vec<(DpdkOptions, Pool)>,
}

/// The buffers of a device.
struct Pool(*mut Buffers);

// SAFETY: only its address is passed around; DPDK is told it by one thread at a time.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: it was made, and no queue uses it any more: a device has it as long as it has queues.
        unsafe { conic_dpdk_free(self.0) };
    }
}

/// What `conic_dpdk_receive` gives where the device is gone.
const GONE: u32 = u32::MAX;

/// What the queues of a device share, until the last of them is closed.
struct Device {
    /// Its number, as DPDK counts.
    port: u16,
    _pool: Pool,
}

impl Drop for Device {
    fn drop(&mut self) {
        let _control = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: with its last queue nobody uses the device, whose buffers go behind it.
        unsafe { conic_dpdk_release(self.port) };
    }
}

/// A queue that is open.
struct Open {
    queue: *mut Queue,
    /// The last of its device's queues to go stops the device. None only while it is dropped.
    device: Option<Arc<Device>>,
    /// Its device has been taken away: to stop it may take as long as its driver waits for answers.
    is_gone: bool,
}

// SAFETY: a queue is used by one thread at a time, which DPDK allows to be any thread.
unsafe impl Send for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the queue is ours and is not used again.
        unsafe { conic_dpdk_close(self.queue) };
        let Some(device) = self.device.take().and_then(Arc::into_inner) else { return };
        if self.is_gone {
            match Closer::start() {
                Ok(closer) => closer.close(device),
                // Whoever switches frames here cannot wait: the device and its buffers stay as they are.
                Err(_) => std::mem::forget(device),
            }
        }
    }
}

/// A queue of a DPDK device.
pub struct Dpdk {
    name: String,
    /// What it is, for people.
    description: String,
    /// None where the device is gone.
    open: Option<Open>,
    /// It is the one that says what the device has counted.
    speaks: bool,
    counters: Counters,
}

impl std::fmt::Debug for Dpdk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dpdk").field("device", &self.name).finish_non_exhaustive()
    }
}

impl Dpdk {
    /// Opens a device with all its queues; at least one.
    ///
    /// # Errors
    /// DPDK does not start, has no such device, or the device refuses.
    pub fn open_queues(options: &DpdkOptions) -> Result<Vec<Dpdk>, PortError> {
        let failed = |problem| failed(options, problem);
        let Ok(device) = CString::new(options.device.clone()) else { return Err(failed(DpdkProblem::Name)) };
        let mut control = control(options)?;
        let prepared = control.prepared.iter().position(|(meant, _)| meant == options);
        let pool = match prepared {
            Some(index) => control.prepared.swap_remove(index).1,
            None => make_pool(&mut control, options)?,
        };
        // SAFETY: DPDK is started; the text outlives the call.
        let port = unsafe { conic_dpdk_find(device.as_ptr()) };
        let port = u16::try_from(port).map_err(|_| failed(DpdkProblem::Device(text(port))))?;
        let (count, slots) = (options.queues.max(1), options.frames as u16);
        let mut queues = vec![std::ptr::null_mut(); count];
        // SAFETY: there is room for as many queues as are asked for, all null, and the pool stays as long as they do; a device that
        // refuses has let go of it when the call returns.
        let result = unsafe { conic_dpdk_configure(port, count as u16, slots, pool.0, queues.as_mut_ptr()) };
        match result {
            0 => {}
            1 => return Err(failed(DpdkProblem::Taken)),
            error => return Err(failed(DpdkProblem::Configure(text(error)))),
        }
        let device = Arc::new(Device { port, _pool: pool });
        let queue = |(number, queue)| {
            let open = Open { queue, device: Some(Arc::clone(&device)), is_gone: false };
            let (name, description) = (options.device.clone(), describe(&options.device, &open));
            Dpdk { name, description, open: Some(open), speaks: number == 0, counters: Counters::default() }
        };
        Ok(queues.into_iter().enumerate().map(queue).collect())
    }

    /// Does for [`Dpdk::open_queues`] what needs no device: starts DPDK and makes the buffers, which stay until then.
    ///
    /// # Errors
    /// DPDK does not start, or has not the memory.
    pub fn prepare(options: &DpdkOptions) -> Result<(), PortError> {
        let mut control = control(options)?;
        let pool = make_pool(&mut control, options)?;
        control.prepared.push((options.clone(), pool));
        Ok(())
    }

    /// Lets go of a device that is gone: the system may wait for it.
    fn lost(&mut self) -> PortError {
        if let Some(mut open) = self.open.take() {
            open.is_gone = true;
        }
        self.description += ", gone";
        DpdkError { device: self.name.clone(), problem: DpdkProblem::Gone }.into()
    }
}

/// A device with its driver, its address, and whether it takes what is for others.
fn describe(name: &str, open: &Open) -> String {
    let (mut driver, mut address) = (std::ptr::null(), [0; 6]);
    // SAFETY: the queue is open, and there is room for a text's address and for six bytes.
    let promiscuous = unsafe { conic_dpdk_identity(open.queue, &mut driver, address.as_mut_ptr()) };
    if promiscuous < 0 || driver.is_null() {
        return format!("DPDK device {name}");
    }
    // SAFETY: a driver's name stays as long as DPDK does.
    let driver = unsafe { CStr::from_ptr(driver) }.to_string_lossy();
    let address = address.map(|byte| format!("{byte:02x}")).join(":");
    let own = if promiscuous == 0 { ", not promiscuous" } else { "" };
    format!("DPDK device {name} ({driver}, {address}{own})")
}

fn failed(options: &DpdkOptions, problem: DpdkProblem) -> PortError {
    DpdkError { device: options.device.clone(), problem }.into()
}

/// DPDK's control path, with DPDK started.
fn control(options: &DpdkOptions) -> Result<MutexGuard<'static, Control>, PortError> {
    let started = *STARTED.get_or_init(|| start(options));
    started.map_err(|code| failed(options, DpdkProblem::Start(text(code))))?;
    Ok(CONTROL.lock().unwrap_or_else(PoisonError::into_inner))
}

fn make_pool(control: &mut Control, options: &DpdkOptions) -> Result<Pool, PortError> {
    let (queues, slots) = (options.queues.max(1) as u16, options.frames as u16);
    let mut pool = std::ptr::null_mut();
    // SAFETY: DPDK is started, and there is room for the address.
    let result = unsafe { conic_dpdk_pool(control.pools, queues, slots, &mut pool) };
    if result < 0 {
        return Err(failed(options, DpdkProblem::Configure(text(result))));
    }
    control.pools += 1;
    Ok(Pool(pool))
}

fn text(code: i32) -> String {
    // SAFETY: DPDK gives a text that stays until this thread asks again.
    unsafe { CStr::from_ptr(conic_dpdk_error(code)) }.to_string_lossy().into_owned()
}

fn start(options: &DpdkOptions) -> Result<(), i32> {
    let memory = options.megabytes.to_string();
    let mut arguments = vec!["conic", "--no-telemetry", "-m", &memory];
    // In memory alone: nothing is left behind, and no other DPDK program is met.
    arguments.extend_from_slice(if options.huge_pages { &["--in-memory"] } else { &["--no-huge", "--no-shconf"] });
    // No device of the PCI bus but those that are asked for later, whatever the first one is: another may be another program's, as the one
    // is that is prepared for.
    arguments.extend_from_slice(&["--allow", "0000:00:00.0"]);
    let texts: Vec<CString> = arguments.iter().filter_map(|argument| CString::new(*argument).ok()).collect();
    let mut pointers: Vec<*mut c_char> = texts.iter().map(|text| text.as_ptr().cast_mut()).collect();
    // DPDK keeps and reorders them, and may look at them later.
    let count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    std::mem::forget(texts);
    // SAFETY: the texts are never freed, the list of them outlives the call, which is the first and only one.
    match unsafe { conic_dpdk_start(count, pointers.leak().as_mut_ptr()) } {
        0 => Ok(()),
        code => Err(code),
    }
}

impl Port for Dpdk {
    fn receive(&mut self, _now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        let Some(open) = &self.open else { return Ok(Receive::End) };
        let limit = frame.len().min(MAX_FRAME);
        // SAFETY: the queue is ours, and the frame has the room that is said.
        let length = unsafe { conic_dpdk_receive(open.queue, frame.as_mut_ptr(), limit as u32) };
        if length == 0 {
            return Ok(Receive::None);
        }
        if length == GONE {
            return Err(self.lost());
        }
        if length as usize > limit {
            self.counters.skipped_oversized += 1;
            return Ok(Receive::Skipped);
        }
        Ok(self.counters.receive_frame(frame, length as usize))
    }

    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if self.counters.refuse_length(frame) {
            return Ok(Transmit::Refused);
        }
        let Some(open) = &self.open else {
            // It has been said.
            self.counters.refused_link_down += 1;
            return Ok(Transmit::Refused);
        };
        // SAFETY: the queue is ours; the frame is read during the call only.
        if unsafe { conic_dpdk_transmit(open.queue, frame.as_ptr(), frame.len() as u32) } == 0 {
            self.counters.transmit_full += 1;
            return Ok(Transmit::Full);
        }
        self.counters.count_transmitted(frame.len());
        Ok(Transmit::Accepted)
    }

    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        // What is left leaves with the next flush, or with a transmit that finds no room.
        if let Some(open) = &self.open {
            // SAFETY: the queue is ours.
            unsafe { conic_dpdk_flush(open.queue) };
        }
        Ok(())
    }

    /// At once: a DPDK device is polled, and nothing wakes whoever sleeps.
    fn next_due(&self) -> Option<Time> {
        self.open.as_ref().map(|_| Time::ZERO)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        // Whoever has all queues adds up what they say.
        let Some(open) = self.open.as_ref().filter(|_| self.speaks) else { return Vec::new() };
        const NAMES: [&str; 6] = [
            "device_received",
            "device_transmitted",
            "device_missed",
            "device_receive_errors",
            "device_transmit_errors",
            "device_no_buffer",
        ];
        let mut values = [0; 6];
        // SAFETY: the queue is ours, and there is room for six values.
        unsafe { conic_dpdk_statistics(open.queue, values.as_mut_ptr()) };
        NAMES.into_iter().zip(values).collect()
    }

    fn is_up(&self) -> bool {
        // SAFETY: the queue is ours.
        self.open.as_ref().is_some_and(|open| unsafe { conic_dpdk_link(open.queue) != 0 })
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn forget_received(&mut self) {
        let Some(open) = &self.open else { return };
        // No more than the largest ring holds and a burst: what comes meanwhile is nobody else's.
        for _ in 0..(1 << 14) + 32 {
            // SAFETY: the queue is ours; without room nothing is copied.
            if matches!(unsafe { conic_dpdk_receive(open.queue, std::ptr::null_mut(), 0) }, 0 | GONE) {
                return;
            }
        }
    }

    /// The device is closed, and the other process opens it: DPDK has no way to pass one on.
    fn can_bequeath(&self) -> bool {
        self.open.is_some()
    }

    /// Nothing is passed: with the last queue that is dropped the device is free.
    fn bequeath(&mut self) -> Option<Legacy> {
        self.open.as_ref()?;
        self.flush(Time::ZERO).ok()?;
        Some(Legacy::default())
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.flush(Time::ZERO)
    }
}
