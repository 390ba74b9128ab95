// The unmodified stripe SDK against the server under test: node stripe.js PORT USER
// Prints one JSON object: what the calls gave.
const Stripe = require('../node_modules/stripe');

const [port, user] = process.argv.slice(2);
const stripe = new Stripe('sk_test_placeholder', {
    host: '127.0.0.1', port, protocol: 'http', timeout: 1000, maxNetworkRetries: 4, telemetry: false,
});
const events = [];
stripe.on('response', (r) => events.push(r.status));

async function main() {
    const out = { events };
    const order = { amount: 2000, currency: 'eur', source: 'tok_visa' };
    const first = await stripe.charges.create(order);
    out.first = { id: first.id, replayed: first.lastResponse.headers['idempotency-replayed'], status: first.lastResponse.statusCode };
    const key = { idempotencyKey: 'order-4711/attempt' };
    out.second = (await stripe.charges.create(order, key)).id;
    out.again = (await stripe.charges.create(order, key)).id;
    try {
        await stripe.charges.create({ ...order, amount: 9900 }, key);
        out.changed = 'no error';
    }
    catch (error) {
        out.changed = { type: error.type, status: error.statusCode, message: error.message, code: error.code };
    }
    console.log(JSON.stringify(out));
}
main().catch((error) => { console.log(JSON.stringify({ failed: String(error), events })); process.exit(1); });
