/** The handler of `make bench-drain`: what is measured is everything but it. */
export default function handle() {}
