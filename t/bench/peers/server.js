'use strict';
// A server that does what mod_bench.c does, behind another library for idempotency keys, each as its own README sets it
// up, with Redis. As many processes as the machine has cores, as httpd has; only for measuring.
//
//   node server.js node-idempotency|express-idempotency|none PORT REDIS_SOCKET WORKERS
//
// POST /bench is executed and counted, GET /count says how many were in all processes. Prints "ready" when it listens.
const cluster = require('node:cluster');
const http = require('node:http');

const [kind, port, socket, workers] = process.argv.slice(2);
const redis = { socket: { path: socket } };
let executed = 0;

function charge() {
    executed++;
    const id = 'ch_' + process.pid.toString(16) + executed.toString(16).padStart(8, '0');
    return { id, object: 'charge', amount: 1999, currency: 'eur', status: 'succeeded' };
}

// The processes' counts are added up by the first one.
const asked = new Map();
let question = 0;

function count(answer) {
    asked.set(++question, answer);
    process.send({ question });
}

function addUp() {
    const open = new Map();
    cluster.on('message', (from, message) => {
        if (message.question) {
            const name = `${from.id}-${message.question}`;
            open.set(name, { from, question: message.question, sum: 0, missing: Object.keys(cluster.workers).length });
            Object.values(cluster.workers).forEach((worker) => worker.send({ name }));
            return;
        }
        const sum = open.get(message.name);
        sum.sum += message.executed;
        if (--sum.missing === 0) {
            open.delete(message.name);
            sum.from.send({ answer: sum.question, sum: sum.sum });
        }
    });
}

function answerCounts() {
    process.on('message', (message) => {
        if (message.name) {
            process.send({ name: message.name, executed });
        }
        if (message.answer) {
            asked.get(message.answer)(message.sum);
            asked.delete(message.answer);
        }
    });
}

function send(res, status, body) {
    res.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) });
    res.end(body);
}

function read(req, then) {
    const parts = [];
    req.on('data', (part) => parts.push(part));
    req.on('end', () => then(Buffer.concat(parts).toString()));
}

// node:http and what the protected request needs: handle(request with a parsed body, answer(status, text)).
function plain(handle) {
    return http.createServer((req, res) => {
        if (req.url === '/count') {
            count((sum) => send(res, 200, `${sum}\n`));
            return;
        }
        read(req, (text) => handle(req, text, (status, body) => send(res, status, body)));
    });
}

async function nodeIdempotency() {
    const { Idempotency } = require('@node-idempotency/core');
    const { RedisStorageAdapter } = require('@node-idempotency/storage-adapter-redis');
    const storage = new RedisStorageAdapter(redis);
    await storage.connect();
    const idempotency = new Idempotency(storage, {});
    return plain(async (req, text, answer) => {
        const request = { headers: req.headers, path: req.url, method: req.method, body: JSON.parse(text) };
        try {
            const known = await idempotency.onRequest(request);
            if (known) {
                answer(known.additional.status, known.body);
                return;
            }
            const body = JSON.stringify(charge());
            await idempotency.onResponse(request, { body, additional: { status: 200 } });
            answer(200, body);
        }
        catch (error) {
            answer(409, JSON.stringify({ error: error.message }));
        }
    });
}

async function expressIdempotency() {
    const express = require('express');
    const library = require('express-idempotency');
    const { default: RedisAdapter } = require('express-idempotency-redis-adapter');
    const dataAdapter = new RedisAdapter({ connectionConfig: redis });
    await dataAdapter.connect();
    const app = express();
    app.get('/count', (req, res) => count((sum) => res.send(`${sum}\n`)));
    app.use(express.json());
    app.use(library.idempotency({ dataAdapter }));
    app.post('/bench', (req, res) => {
        if (!library.getSharedIdempotencyService().isHit(req)) {
            res.json(charge());
        }
    });
    app.use((error, req, res, next) => res.headersSent ? next(error) : res.json({ error: error.message }));
    return http.createServer(app);
}

async function none() {
    return plain((req, text, answer) => answer(200, JSON.stringify(charge())));
}

const kinds = { 'node-idempotency': nodeIdempotency, 'express-idempotency': expressIdempotency, none };

if (cluster.isPrimary) {
    let listening = 0;
    addUp();
    cluster.on('listening', () => ++listening === Number(workers) && console.log('ready'));
    cluster.on('exit', () => process.exit(1));
    for (let i = 0; i < Number(workers); i++) {
        cluster.fork();
    }
}
else {
    answerCounts();
    kinds[kind]().then((server) => server.listen(Number(port), '127.0.0.1'));
}
