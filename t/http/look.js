// Opens pages in Chromium as on a phone and as on a desk, and says what is seen: one JSON object a line.
'use strict';
const { chromium } = require('playwright-core');

(async () => {
    const [user, ...urls] = process.argv.slice(2);
    const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', headless: true,
        args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--no-first-run'] });
    for (const url of urls) {
        for (const width of [375, 1280]) {
            const context = await browser.newContext({ viewport: { width, height: 800 }, httpCredentials: { username: user, password: user } });
            const page = await context.newPage();
            const faults = [];
            const foreign = [];
            page.on('console', message => { if (message.type() === 'error') faults.push(message.text()); });
            page.on('pageerror', error => faults.push(String(error)));
            page.on('request', request => { if (!request.url().startsWith(new URL(url).origin)) foreign.push(request.url()); });
            const response = await page.goto(url);
            const seen = await page.evaluate(() => ({
                title: document.title,
                heading: (document.querySelector('h1') || {}).innerText,
                scroll: document.scrollingElement.scrollWidth,
                text: document.body.innerText.length,
                charts: [...document.querySelectorAll('svg')].map(svg => ({ width: svg.getBoundingClientRect().width,
                    height: svg.getBoundingClientRect().height, marks: svg.querySelectorAll('path, rect, polyline, polygon, line, circle').length })),
            }));
            console.log(JSON.stringify({ url, width, status: response.status(), faults, foreign, ...seen }));
            await context.close();
        }
    }
    await browser.close();
})().catch(error => { console.error(String(error)); process.exit(1); });
