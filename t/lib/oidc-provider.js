// OpenID Providers for the tests: `oidc-provider` from npm, one issuer a port, all in one process.
//
//   node oidc-provider.js FOLDER REDIRECT_URI PORT...
//
// FOLDER/accounts.json, read again for every answer: { account: { claims of its tokens } }. An account named "short"
// has tokens that live for a second. FOLDER/N.pem gets the public key of issuer N, FOLDER/ready is made when all listen.
// FOLDER/login names the account that the next login page logs in; nobody types a password here.
'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const { generateKeyPairSync } = require('crypto');

const [folder, redirectUri, ...ports] = process.argv.slice(2);
const accounts = () => JSON.parse(fs.readFileSync(path.join(folder, 'accounts.json'), 'utf8'));
const RESOURCE = 'urn:tests:api';

function configuration(number) {
    const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    fs.writeFileSync(path.join(folder, `${number}.pem`), publicKey.export({ type: 'spki', format: 'pem' }));
    const machine = (name) => ({ client_id: name, client_secret: 'secret', grant_types: ['client_credentials'], redirect_uris: [], response_types: [] });
    return {
        jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), kid: `issuer-${number}`, use: 'sig', alg: 'RS256' }] },
        clients: [
            { client_id: 'httpd', client_secret: 'secret', redirect_uris: [redirectUri], grant_types: ['authorization_code'], response_types: ['code'] },
            ...Object.keys(accounts()).map(machine),
        ],
        cookies: { keys: ['tests'] },
        pkce: { required: () => false },
        claims: { openid: ['sub', 'tenant', 'groups', 'email'] },
        conformIdTokenClaims: false,
        ttl: { ClientCredentials: (ctx, token, client) => (client.clientId === 'short' ? 1 : 600), AccessToken: 600, IdToken: 600, Session: 600, Interaction: 600, Grant: 600 },
        features: {
            devInteractions: { enabled: false },
            clientCredentials: { enabled: true },
            resourceIndicators: {
                enabled: true,
                defaultResource: (ctx, client) => (client.clientId === 'httpd' ? undefined : RESOURCE),
                getResourceServerInfo: () => ({ scope: 'api', audience: RESOURCE, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } }),
            },
        },
        extraTokenClaims: (ctx, token) => accounts()[token.accountId || token.clientId],
        findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, ...accounts()[id] }) }),
        interactions: { url: (ctx, interaction) => `/login/${interaction.uid}` },
        loadExistingGrant: async (ctx) => {
            const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId });
            grant.addOIDCScope('openid');
            await grant.save();
            return grant;
        },
    };
}

async function main() {
    const { default: Provider } = await import('oidc-provider');
    await Promise.all(ports.map((port, index) => new Promise((resolve) => {
        const provider = new Provider(`http://127.0.0.1:${port}`, configuration(index + 1));
        const callback = provider.callback();
        provider.on('server_error', (ctx, error) => console.log(error.stack));
        http.createServer((request, response) => {
            if (!request.url.startsWith('/login/')) {
                return callback(request, response);
            }
            const accountId = fs.readFileSync(path.join(folder, 'login'), 'utf8');
            return provider.interactionFinished(request, response, { login: { accountId } }).catch((error) => {
                console.log(error.stack);
                response.writeHead(500).end();
            });
        }).listen(Number(port), '127.0.0.1', resolve);
    })));
    fs.writeFileSync(path.join(folder, 'ready'), '');
}

main();
