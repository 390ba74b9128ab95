package Idem::Test;

# The standard set-up of a test file: a PostgreSQL cluster with the schema, the application, httpd with the module in
# front of it, two users (a and b), a client; and the assertions that many files share. See t/README.md.

use strict;
use warnings;
use Digest::SHA ();
use Exporter 'import';
use File::Copy ();
use Idem::Backend;
use Idem::Client;
use Idem::Httpd;
use Idem::Postgres;
use Idem::Util;
use MIME::Base64 ();
use Test::More;
use Test::Builder;
use Time::HiRes ();

our @EXPORT = (@Test::More::EXPORT, @Idem::Util::EXPORT,
    qw(executed fresh_key is_replay problem protected ran same_octets sha256));

my %PROBLEM = (
    'key-missing' => [ 400, 'after-fix' ], 'key-malformed' => [ 400, 'after-fix' ], 'payload-rejected' => [ 400, 'after-fix' ],
    'route-unresolved' => [ 400, 'after-fix' ], 'identity-missing' => [ 403, 'after-fix' ],
    'in-progress' => [ 409, 'same-key', 1, 10 ], 'outcome-unknown' => [ 409, 'ask-operator' ],
    'response-not-stored' => [ 409, 'ask-operator' ], 'key-expired' => [ 410, 'ask-operator' ],
    'payload-too-large' => [ 413, 'after-fix' ], 'key-reused' => [ 422, 'after-fix' ],
    'quota-exceeded' => [ 429, 'same-key', 60, 60 ], 'body-consumed' => [ 500, 'ask-operator' ],
    'store-unavailable' => [ 503, 'same-key', 1, 3600 ], 'writer-fenced' => [ 503, 'same-key', 1, 3600 ],
);
# What a problem says besides type, title, status, detail, retry and error; in brackets where it must be there.
my %MEMBERS = (
    'response-not-stored' => [ 'outcome', 'original_status' ], 'key-expired' => [ 'outcome', 'settled' ],
);

# new(config => text or sub($t), backends => ['cgi', 'proxy', 'fpm'], mpm, modules, mpm_config, httpd => {more for Idem::Httpd},
#     pg => a cluster that is there already, pg_arg => {for Idem::Postgres}, store => 0 for none, module => 0 for none,
#     backend => an application that is there already)
sub new {
    my ($class, %arg) = @_;
    # A child that is told to end while it connects leaves PostgreSQL's side alone; a session that a test wants to end may
    # have ended by itself between the list of them and the signal.
    my $t = bless { store => 1, module => 1, allowed_pg => [qr/FATAL:  connection to client lost|WARNING:  PID \d+ is not a PostgreSQL (?:backend|server) process/], %arg }, $class;
    $t->{httpd_arg} = $arg{httpd} || {};
    $t->set_up_store if $t->{store};
    my $root = own_folder('httpd');
    $t->{backend} //= Idem::Backend->new(root => $root, kinds => $arg{backends} || ['cgi']);
    spew("$root/users", join('', map { "$_:{SHA}" . MIME::Base64::encode_base64(Digest::SHA::sha1($_), '') . "\n" } qw(a b)), 0644);
    $t->{root} = $root;
    my @modules = @{ $arg{modules} || [] };
    unshift @modules, $t->{backend}->modules;
    $t->{httpd} = Idem::Httpd->new(root => $root, pg => $t->{store} ? $t->{pg} : undef, db_user => $t->{db_user},
        module => $t->{module}, modules => \@modules, (map { defined $arg{$_} ? ($_ => $arg{$_}) : () } qw(mpm mpm_config)),
        %{ $t->{httpd_arg} });
    $t->{httpd}{config} = $t->expand($arg{config});
    $t->{client} = Idem::Client->new(port => $t->{httpd}->port, user => 'a');
    at_end(sub { diag("the end of the error log:\n" . tail($t->{httpd}->log_file, 30)) if !$t->{finished} || !Test::More->builder->is_passing });
    $t->{httpd}->start unless defined $arg{start} && !$arg{start};
    return $t;
}

# A second httpd beside this one: the same configuration (or another), on the same database, in front of the same
# application. What the first one's log may say, the second one's may; finish ends and checks both.
sub twin {
    my ($t, %arg) = @_;
    my $twin = Idem::Test->new((map { defined $t->{$_} ? ($_ => $t->{$_}) : () } qw(pg backend db_user mpm mpm_config modules config start)),
        httpd => $t->{httpd_arg},
        # the other MPM has other words for its size
        ($arg{mpm} ? (mpm_config => undef) : ()), %arg);
    $twin->{ctl} = $t->{ctl};
    push @{ $t->{twins} }, $twin;
    return $twin;
}

# After an outage: every child finds the registry by itself, and which of them answers cannot be chosen. Asks until nobody
# is refused in several rounds of requests, each with a key of its own.
sub found_again {
    my (undef, $client, @request) = @_;
    my $good = 0;
    return wait_for(sub {
        my @refused = grep { $_->status == 503 } $client->parallel(map { [ @request, key => fresh_key() ] } 1 .. 8);
        $good = @refused ? 0 : $good + 1;
        return $good >= 4;
    }, 30);
}

# A client that goes to this server and its twins in turn, connection by connection, under one name.
sub both {
    my ($t) = @_;
    return Idem::Client->new(ports => [ map { $_->{httpd}->port } $t, @{ $t->{twins} || [] } ], user => 'a', authority => 'shop.example');
}

sub pg { $_[0]{pg} }
sub httpd { $_[0]{httpd} }
sub backend { $_[0]{backend} }
sub client { $_[0]{client} }
sub root { $_[0]{root} }

# The schema by the tool itself, and a login that is no more than the web server's role.
sub set_up_store {
    my ($t) = @_;
    my $own = !$t->{pg};
    $t->{pg} //= Idem::Postgres->new(%{ $t->{pg_arg} || {} });
    $t->{db_user} //= $t->{module} ? 'web' : $t->{pg}->user;
    return unless $own && $t->{module};
    $t->{ctl} = $t->{pg}->socket_dir . '/idempotencyctl';
    File::Copy::copy(needed(out_dir() . '/idempotencyctl'), $t->{ctl}) or die "copy: $!\n";
    chmod 0755, $t->{ctl};
    my ($status, $said) = $t->ctl('migrate');
    die "idempotencyctl migrate failed:\n$said" if $status;
    $t->{pg}->do('CREATE ROLE web LOGIN IN ROLE idempotency_writer');
}

# (exit status, output) of idempotencyctl with libpq's environment for this cluster.
sub ctl {
    my ($t, @command) = @_;
    my $program = $t->{ctl} // $t->{pg}->socket_dir . '/idempotencyctl';
    return run(cmd => [ $program, @command ], env => { %{ $t->{pg}->env }, ASAN_OPTIONS => $ENV{ASAN_OPTIONS} }, dir => $t->{pg}->socket_dir);
}

# @CGI@ @PHP@ @FPM@ @PROXY@ @AUTH@ @ROOT@ @PORT@ in a configuration text.
sub expand {
    my ($t, $text) = @_;
    $text = $text->($t) if ref $text;
    $text //= '';
    my %value = ($t->{backend}->tokens, ROOT => $t->{root}, PORT => $t->{httpd}->port,
        AUTH => "AuthType Basic\n    AuthName x\n    AuthBasicProvider file\n    AuthUserFile $t->{root}/users\n    Require valid-user",
    );
    $text =~ s{\@([A-Z_]+)\@}{ $value{$1} // die "what is \@$1\@?\n" }ge;
    return $text;
}

# Text of a protected place: protected('/charges', 'charges.create', @more_lines). A hash reference first may say
# { by => 'cgi' (default) | 'none' | another of Idem::Backend::place, who => 'lines that set tenant and principal' }.
sub protected {
    my $opt = ref $_[0] ? shift : {};
    my ($path, $route, @more) = @_;
    my $by = $opt->{by} // 'cgi';
    my $handler = Idem::Backend::place($by, $path);
    my @who = defined $opt->{who} ? $opt->{who} : ('IdempotencyTenant server', 'IdempotencyPrincipal user');
    return $handler . join("\n    ", "<Location \"$path\">", '@AUTH@', (defined $route ? "IdempotencyRoute $route" : ()), @who, @more)
        . "\n</Location>\n";
}

my $keys = 0;
sub fresh_key { return sprintf 'key-%d-%d-%04d', time, $$, ++$keys }

sub sha256 { return Digest::SHA::sha256_hex($_[0]) }

# Like is() for octets that nobody wants to see on a terminal.
sub same_octets {
    my ($got, $want, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return is(length($got // '') . ' octets ' . sha256($got // ''), length($want) . ' octets ' . sha256($want), $name);
}

# How often the application ran in this piece of the test.
sub executed {
    my ($t, $code) = @_;
    my $before = () = $t->{backend}->effects;
    $code->();
    return (() = $t->{backend}->effects) - $before;
}

sub ran {
    my ($t, $times, $name, $code) = @_;
    my $count = executed($t, $code);
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return is($count, $times, "$name: the application ran $times time" . ($times == 1 ? '' : 's'));
}

# The records there are (a condition in SQL may be given), as rows.
sub records {
    my ($t, $where) = @_;
    return $t->{pg}->query('SELECT * FROM idempotency_records' . ($where ? " WHERE $where" : '') . ' ORDER BY created_at');
}

sub record_count {
    my ($t, $where) = @_;
    return $t->{pg}->value('SELECT count(*) FROM idempotency_records' . ($where ? " WHERE $where" : ''));
}

# The second response is a replay of the first: status, content, media type, operation, marker, no-store.
sub is_replay {
    my ($second, $first, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return subtest "$name: a replay" => sub {
        is($second->status, $first->status, 'same status');
        same_octets($second->body, $first->body, 'same octets');
        is($second->header('Content-Type'), $first->header('Content-Type'), 'same media type');
        is($second->operation, $first->operation, 'same operation');
        like($second->operation, qr/\A[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\z/, 'a UUIDv7');
        is($second->header('Idempotency-Contract'), 'http.idempotency.v1', 'contract');
        is($second->header('Idempotency-Replayed'), 'true', 'marked as replayed');
        ok(!defined $first->header('Idempotency-Replayed'), 'the first is not');
        is($second->header('Cache-Control'), $first->header('Cache-Control') // 'no-store', 'not to be cached by default');
    };
}

# The response is this problem, whole: problem($response, 'key-reused', docs => URL, error_member => 0,
# secrets => [text that must not be in it], operation => 1 where one must be named)
sub problem {
    my ($response, $slug, %arg) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $want = $PROBLEM{$slug} or die "no such problem: $slug\n";
    my ($status, $retry, $least, $most) = @$want;
    return subtest "problem $slug" => sub {
        is($response->status, $status, "status $status") or diag($response->body);
        is($response->header('Content-Type'), 'application/problem+json', 'media type');
        my $p = $response->json;
        ok($response->is_json, 'a JSON object') or return diag($response->body);
        is($p->{type}, $arg{docs} ? "$arg{docs}#$slug" : "tag:mod-idempotency,2026:$slug", 'type');
        is($response->header('Link'), "<$arg{docs}>; rel=\"describedby\"", 'Link to the documentation') if $arg{docs};
        is($p->{status}, $status, 'status member');
        like($response->body, qr/"status"\s*:\s*$status\b/, 'status is a number');
        ok(length($p->{title} // '') && length($p->{detail} // ''), 'title and detail');
        is($p->{retry}, $retry, 'retry');
        unlike($p->{title} . $p->{detail}, qr/\b(?:use|take|try|send|retry with) a (?:new|different|fresh|another) key\b/i, 'no advice to take another key');
        my %known = map { $_ => 1 } qw(type title status detail retry operation error), @{ $MEMBERS{$slug} || [] };
        is_deeply([ grep { !$known{$_} } sort keys %$p ], [], 'nothing else is said');
        ok(exists $p->{$_}, "member $_") for @{ $MEMBERS{$slug} || [] };
        if ($arg{error_member} // 1) {
            is_deeply([ sort keys %{ $p->{error} || {} } ], [ 'code', 'message' ], 'error member');
        }
        else {
            ok(!exists $p->{error}, 'no error member');
        }
        my $after = $response->header('Retry-After');
        if (defined $least) {
            ok(defined $after && $after =~ /\A\d+\z/ && $after >= $least && $after <= $most, "Retry-After from $least to $most")
                or diag(explain($after));
        }
        else {
            is($after, undef, 'no Retry-After');
        }
        is($response->header('Idempotency-Contract'), 'http.idempotency.v1', 'contract');
        ok(defined $p->{operation}, 'names the operation') if $arg{operation};
        is($p->{operation}, $response->operation, 'operation as in the field') if defined $p->{operation} || $arg{operation};
        ok(index($response->body . join("\n", map { $_->[1] } @{ $response->{fields} }), $_) < 0, 'says nothing it must not') for @{ $arg{secrets} || [] };
    };
}

# Lines of PostgreSQL's log (errors and worse) that are expected.
sub allow_pg_log { push @{ $_[0]{allowed_pg} }, @_[ 1 .. $#_ ] }

# The end of every test file: httpd ends by itself, and nobody logged what no test declared.
sub finish {
    my ($t, %arg) = @_;
    for my $twin (@{ $t->{twins} || [] }) {
        $twin->{httpd}->allow_log(@{ $t->{httpd}{allowed} }, @{ $t->{httpd}{expected} });
        $twin->finish(more => 1);
    }
    ok($t->{httpd}->stop, 'httpd ends by itself') if $t->{httpd}->pid;
    my ($undeclared, $unmet) = $t->{httpd}->log_faults;
    @$unmet = grep { my $like = $_; !grep { $_->{httpd}->log =~ $like } @{ $t->{twins} || [] } } @$unmet;
    is(join("\n", @$undeclared), '', 'nothing in the error log that no test declared');
    is(join("\n", @$unmet), '', 'every declared line is in the error log');
    if ($t->{pg} && !$arg{more}) {
        my @bad = grep { my $line = $_; $line =~ /(?:ERROR|FATAL|PANIC|WARNING):  / && !grep { $line =~ $_ } @{ $t->{allowed_pg} } } split /\n/, $t->{pg}->log;
        is(join("\n", @bad), '', 'nothing in the database log that no test declared');
    }
    $t->{finished} = 1;
    done_testing() unless $arg{more};
}

1;
