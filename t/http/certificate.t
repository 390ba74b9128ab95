# Who the caller is by client certificates and by DBM users, with the configurations of conf/examples.
use strict;
use warnings;
use Idem::Test;
use JSON::PP ();

my $dir = own_folder('tls');
my $tls = free_port();
my ($dbm, $machines, $loose, $asked);

sub openssl {
    my ($status, $said) = run(self => 1, dir => $dir, cmd => [ 'openssl', @_ ]);
    $status and die "openssl @_\n$said";
}

# name.crt and name.key: a certificate of an authority, or signed by itself.
sub certificate {
    my ($name, $subject, %arg) = @_;
    openssl(qw(req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout), "$name.key", '-subj', $subject, $arg{ca} ? ('-out', "$name.csr") : ('-x509', '-days', 2, '-out', "$name.crt"),
        ($arg{san} ? ('-addext', "subjectAltName=$arg{san}") : ()));
    openssl(qw(x509 -req -days 2 -copy_extensions copy -in), "$name.csr", '-CA', "$arg{ca}.crt", '-CAkey', "$arg{ca}.key", '-set_serial', $arg{serial}, '-out', "$name.crt") if $arg{ca};
    chmod 0644, "$dir/$name.key";
}

certificate('ca', '/CN=Our CA');
certificate('server', '/CN=machines.example.com', ca => 'ca', serial => 1);
certificate('alice', '/O=acme/CN=alice', ca => 'ca', serial => 11, san => 'DNS:alice.example,email:alice@example.com');
certificate('renewed', '/O=acme/CN=alice', ca => 'ca', serial => 12, san => 'DNS:alice.example');
certificate('bob', '/O=acme/CN=bob', ca => 'ca', serial => 13, san => 'DNS:bob.example');
certificate('nobody', '/CN=nobody', ca => 'ca', serial => 14);
certificate('forged', '/O=acme/CN=alice', san => 'DNS:alice.example'); # by itself

sub configuration { my ($t, @hosts) = @_; return join "\n", "Listen 127.0.0.1:$tls https\nSSLSessionCache shmcb:$t->{root}/run/sessions(512000)\nSSLSessionTickets off", @hosts }

my $t = Idem::Test->new(
    modules => [qw(ssl socache_shmcb authn_dbm http2)],
    config => sub {
        my ($t) = @_;
        for my $user (qw(a b)) {
            my ($status, $said) = run(self => 1, dir => $dir, cmd => [ 'htdbm', '-TSDBM', ($user eq 'a' ? '-cb' : '-b'), "$dir/users", $user, $user ]);
            $status and die $said;
        }
        chmod 0644, glob "$dir/users.*";
        $dbm = slurp('conf/examples/basic-dbm.conf') =~ s{\*:80}{*:\@PORT\@}r =~ s{/etc/apache2/api\.users}{$dir/users}gr;
        $machines = slurp('conf/examples/client-certificate.conf') =~ s{\*:443}{*:$tls}r
            =~ s{/etc/apache2/machines}{$dir/server}gr =~ s{/etc/apache2/our-ca}{$dir/ca}r;
        # the same places where any certificate is let in, or none
        $loose = $machines =~ s{machines\.example}{loose.example}r =~ s{SSLVerifyClient\s+require}{SSLVerifyClient optional_no_ca\nProtocols h2 http/1.1}r
            =~ s{(?=</VirtualHost>)}{<<'CONF'}er;
ScriptAlias /named "@CGI@"
<Location "/named">
    SSLUserName SSL_CLIENT_S_DN_CN
    IdempotencyRoute     named
    IdempotencyTenant    server
    IdempotencyPrincipal user
</Location>
ScriptAlias /variable "@CGI@"
<Location "/variable">
    SSLOptions +StdEnvVars
    IdempotencyRoute     variable
    IdempotencyTenant    server
    IdempotencyPrincipal env:SSL_CLIENT_S_DN
</Location>
CONF
        # asked for in one place only, when the request is there already
        $asked = $machines =~ s{machines\.example}{asked.example}r =~ s{\s+SSLVerifyClient\s+require}{}r
            =~ s{(?=\s+IdempotencyRoute\s+readings)}{\n        SSLVerifyClient require\n        SSLRenegBufferSize 1048576}r;
        s{/usr/lib/cgi-bin/\w+}{\@CGI\@}g for $dbm, $machines, $loose, $asked;
        return configuration($t, $dbm, $machines, $loose, $asked);
    });
$t->httpd->allow_log(qr/\[ssl:(?:warn|error)\]/);
my $body = '{"amount":10}';

# A request over TLS by curl; gives something like a Response. cert => name, sni => name in the handshake, host => Host.
sub secure {
    my ($place, %arg) = @_;
    my $sni = $arg{sni} // 'machines.example.com';
    my ($status, $said) = run(self => 1, dir => $dir, cmd => [ 'curl', '-sS', '-i', ($arg{h2} ? '--http2' : '--http1.1'), '-k', '--max-time', 20, @{ $arg{options} // [] }, ($arg{cert} ? ('--cert', "$dir/$arg{cert}.crt", '--key', "$dir/$arg{cert}.key") : ()),
        '--connect-to', "$sni:443:127.0.0.1:$tls", '-H', 'Content-Type: application/json', '-H', "Idempotency-Key: \"$arg{key}\"", ($arg{host} ? ('-H', "Host: $arg{host}") : ()), '-d', $arg{body} // $body, "https://$sni$place" ]);
    my ($head, $content) = split /\r?\n\r?\n/, $said, 2;
    (note($said), return bless { status => 0, fields => [], body => $said }, "Idem::Response") unless ($head // "") =~ m{\AHTTP/\S+ (\d+)};
    my $response = Idem::Response->parse("HTTP/1.1 $1 x\r\n" . ($head =~ s/\A.*?\r?\n//r));
    $response->{body} = $content;
    return $response;
}

sub nobody {
    my ($name, $log, @request) = @_;
    my $rows = $t->record_count;
    ran($t, 0, $name, sub { problem(secure(@request), 'identity-missing') });
    is($t->record_count, $rows, "$name: nothing is stored");
    $t->httpd->expect_log($log);
}

# The same request in a new TLS session and in the one that is resumed after it.
sub resumed {
    my ($version, $name, $host) = @_;
    my $request = "POST /readings HTTP/1.1\r\nHost: $host\r\nIdempotency-Key: \"resumed $version $host\"\r\nContent-Type: application/json\r\nContent-Length: " . length($body) . "\r\nConnection: close\r\n\r\n$body";
    my @connect = ('openssl', 's_client', '-connect', "127.0.0.1:$tls", '-servername', $host, $version, '-ign_eof', '-cert', "$name.crt", '-key', "$name.key");
    my (undef, $new) = run(self => 1, dir => $dir, timeout => 20, cmd => [ @connect, '-sess_out', 'session' ], stdin => $request);
    my (undef, $again) = run(self => 1, dir => $dir, timeout => 20, cmd => [ @connect, '-sess_in', 'session' ], stdin => $request);
    like($again, qr/^Reused, /m, "$version $name: the session is resumed");
    return [ $new, $again ];
}

subtest 'client certificates' => sub {
    my $first;
    ran($t, 1, 'a retry', sub {
        $first = secure('/readings', cert => 'alice', key => 'k1');
        is($first->status, 200, 'runs') or diag($first->body);
        is_replay(secure('/readings', cert => 'alice', key => 'k1'), $first, 'again');
        is_replay(secure('/readings', cert => 'renewed', key => 'k1'), $first, 'with a renewed certificate');
    });
    my ($record) = $t->records("idem_key = 'k1'");
    is($record->{principal_id}, 'CN=alice,O=acme', 'the subject');
    is($record->{tenant_id}, 'acme', 'a part of it');
    ran($t, 1, 'another machine', sub { is(secure('/readings', cert => 'bob', key => 'k1')->status, 200, 'runs') });
    nobody('a subject without an organisation', qr/IDEM0102: .*IdempotencyTenant source 'ssl:SSL_CLIENT_S_DN_O' is missing or empty/, '/readings', cert => 'nobody', key => 'k1');
    is(secure('/meters', cert => 'alice', key => 'k1')->status, 200, 'by alternative name');
    is(($t->records("route = 'meters.create'"))[0]{principal_id}, 'alice.example', 'the name');
    nobody('no alternative name', qr/IDEM0102: .*'ssl:SSL_CLIENT_SAN_DNS_0'/, '/meters', cert => 'nobody', key => 'k1');
    ran($t, 0, 'none', sub { my $refused = secure('/readings', key => 'k1'); ok(!$refused->{status} || $refused->{status} == 403, 'the handshake fails') });
    is(index($t->httpd->log =~ s/^(?!.*IDEM).*\n//gmr, 'alice'), -1, 'no line of the module names a subject');
};

subtest 'certificates that nobody has verified' => sub {
    my @at = (sni => 'loose.example.com');
    my $unverified = qr/IDEM0102: .*'ssl:SSL_CLIENT_S\w+' is not trusted: the client certificate was not verified/;
    my $first = secure('/readings', cert => 'alice', key => 'k2', @at);
    is($first->status, 200, 'a verified one');
    is_replay(secure('/readings', cert => 'alice', key => 'k2', @at, h2 => 1), $first, 'over HTTP/2');
    nobody('signed by itself', $unverified, '/readings', cert => 'forged', key => 'k2', @at);
    nobody('signed by itself, over HTTP/2', $unverified, '/readings', cert => 'forged', key => 'k2', @at, h2 => 1);
    nobody('signed by itself, its name', $unverified, '/meters', cert => 'forged', key => 'k2', @at);
    nobody('none', $unverified, '/readings', key => 'k2', @at);
    is(secure('/named', cert => 'alice', key => 'k2', @at)->status, 200, 'SSLUserName of a verified one');
    nobody('SSLUserName of one that signed itself', qr/IDEM0102: .*'user' is not trusted: the client certificate was not verified/, '/named', cert => 'forged', key => 'k2', @at);
    nobody('a variable that mod_ssl sets later', qr/IDEM0102: .*'env:SSL_CLIENT_S_DN'/, '/variable', cert => 'forged', key => 'k2', @at);
    # mod_ssl forgets with the session what it found out about the certificate.
    my $resumed = qr/IDEM0102: .* is not trusted: with SSLVerifyClient optional_no_ca nobody knows/;
    for my $version (qw(-tls1_2 -tls1_3)) {
        like(resumed($version, 'forged', 'loose.example.com')->[1], qr{HTTP/1\.1 403 }, "$version: signed by itself, in a resumed session");
        my ($new, $again) = @{ resumed($version, 'alice', 'loose.example.com') };
        like($new, qr{HTTP/1\.1 200 }, "$version: a verified one");
        like($again, qr{HTTP/1\.1 403 }, "$version: in a resumed session nobody can tell the two apart") if $version eq '-tls1_2';
    }
    $t->httpd->expect_log($resumed);
};

# mod_ssl reads the body, negotiates anew, and gives the body back from below us.
subtest 'a certificate that is asked for behind the request' => sub {
    for my $version ('1.2', '1.3') {
        my @request = ('/readings', cert => 'alice', key => "asked $version", sni => 'asked.example.com', options => [ '--tls-max', $version ]);
        my $large = '{"list":"' . 'x' x 100_000 . '"}';
        my ($first, $again);
        ran($t, 1, "TLS $version", sub { ($first, $again) = map { secure(@request, body => $large) } 1 .. 2 });
        is($first->status, 200, "TLS $version: runs");
        is($first->json->{sha256}, sha256($large), "TLS $version: with the whole body");
        is_replay($again, $first, "TLS $version");
        problem(secure(@request, body => $large =~ s/x/y/r), 'key-reused');
    }
};

subtest 'the name in the handshake and the Host field are no tenant' => sub {
    my $evil = secure('/meters', cert => 'alice', key => 'k3', sni => 'evil.example');
    is($evil->status, 200, 'a name that nobody has');
    is(($t->records("idem_key = 'k3'"))[0]{tenant_id}, 'machines.example.com', 'the configured name of the host that answers');
    my $host = secure('/meters', cert => 'alice', key => 'k3');
    is($t->record_count("idem_key = 'k3'"), 1, 'another Host field is no other tenant');
    problem($host, 'key-reused');
};

subtest 'users in a DBM file' => sub {
    my $c = $t->client->with(authority => 'dbm.example.com');
    my $first;
    ran($t, 1, 'a retry', sub { $first = $c->post('/bookings', key => 'k4', body => $body); is_replay($c->post('/bookings', key => 'k4', body => $body), $first, 'again') });
    is_deeply([ map { @$_{qw(tenant_id principal_id)} } $t->records("idem_key = 'k4'") ], [ 'dbm.example.com', 'a' ], 'tenant and principal');
    ran($t, 1, 'another user', sub { is($c->post('/bookings', key => 'k4', body => $body, user => 'b')->status, 200, 'runs') });
    ran($t, 0, 'a wrong password', sub { is($c->post('/bookings', key => 'k4', body => $body, user => undef, headers => [ Authorization => 'Basic YTp4' ])->status, 401, 'is refused') });
    $t->httpd->expect_log(qr/AH01617: user a: authentication failure/);
};

subtest 'resumed sessions where every certificate is verified' => sub {
    $t->httpd->graceful(config => $t->expand(configuration($t, $machines)));
    for my $version (qw(-tls1_2 -tls1_3)) {
        my ($new, $again) = @{ resumed($version, 'alice', 'machines.example.com') };
        like($new, qr{HTTP/1\.1 200 }, "$version: runs");
        like($again, qr{HTTP/1\.1 200 .*Idempotency-Replayed: true}s, "$version: a replay");
    }
};

$t->finish;
