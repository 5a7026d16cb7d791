/**
 * The handler of `make bench PART=drain`. It does nothing, so that only the delivery is measured.
 */
export default function handle() {}
